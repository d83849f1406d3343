# Sourced by gpu.sh: small programs whose time answers one question each. Every figure is a line of
# figure_list: NAME, a model's file, options of emit. Rows go to figures.tsv: name, outcome, median
# in microseconds, estimate of the plan, steps, libraries in the plan, bytes of inputs, weights and
# outputs, operations of products. bench/figures.py makes tables of them.
#
#     template/NAME     bench/templates/: one template of ours each, tensors beyond the L2 cache;
#                       NAME_tf32 and NAME_fp16 by tensor cores, where arithmetic is the bound
#     form/CASE/N       operator cases by their N-th best derivation; 0 is the original,
#                     plan what is planned, merges included
#     layer/NAME/none   a layer of a network by our own kernels; /all: by the plan as it is;
#                       /calls: by the library's call, whatever its cost

figure_limit=60
figure_forms='0 1 2 3 4 plan'

# name, then GEMM: M N K; convolution: N C F H, kernel, stride
layers='
gemm_1024       gemm 1024 1024 1024
gemm_4096       gemm 4096 4096 4096
bert_qkv        gemm 128 2304 768
bert_ffn        gemm 128 3072 768
bert_ffn_16     gemm 2048 3072 768
vit_ffn_16      gemm 3152 3072 768
vgg_fc          gemm 1 4096 25088
resnet_c2       conv 1 64 64 56 3 1
resnet_c3       conv 1 128 128 28 3 1
resnet_c4       conv 1 256 256 14 3 1
resnet_c5       conv 1 512 512 7 3 1
resnet_c2_16    conv 16 64 64 56 3 1
resnet_c5_16    conv 16 512 512 7 3 1
resnet_down_16  conv 16 64 128 56 3 2
resnet_point_16 conv 16 256 64 56 1 1
vgg_c1_16       conv 16 64 64 224 3 1
'

# The layer's model; GEMMs and convolutions as ONNX has them.
layer_model() { # NAME KIND NUMBER...
    local name=$1 kind=$2
    shift 2
    echo 'ein 1'
    echo "# A layer's shape, for bench/gpu.sh."
    echo "model $name"
    if [ "$kind" = gemm ]; then
        printf 'input x: f32[%s,%s]\nweight k: f32[%s,%s] = randn(seed=1, std=0.02)\n' \
            "$1" "$3" "$3" "$2"
        printf 'output y\ny = MatMul(x, k)\n'
    else
        printf 'input x: f32[%s,%s,%s,%s]\nweight k: f32[%s,%s,%s,%s] = randn(seed=1, std=0.02)\n' \
            "$1" "$2" "$4" "$4" "$3" "$2" "$5" "$5"
        printf 'output y\ny = Conv(x, k; strides=%s, pads=%s)\n' "$6" "$(($5 / 2))"
    fi
}

figure_list() {
    local file form name rest
    for file in bench/templates/*.ein; do
        name=${file##*/}
        name=${name%.ein}
        selected_figure "$name" || continue
        echo "template/$name $file --libs none"
        case $name in t12_*)
            echo "template/${name}_tf32 $file --libs none --math tf32"
            echo "template/${name}_fp16 $file --libs none --math fp16" ;;
        esac
    done
    for file in models/cases/*.ein; do
        name=${file##*/}
        name=${name%.ein}
        selected_figure "$name" || continue
        for form in $figure_forms; do
            if [ "$form" = 0 ]; then echo "form/$name/0 $file --baseline"
            elif [ "$form" = plan ]; then echo "form/$name/plan $file"
            else echo "form/$name/$form $file --form $form"; fi
        done
    done
    [ $stand_in = no ] || return 0
    mkdir -p "$work/layers"
    while read -r name rest; do
        [ -n "$name" ] && selected_figure "$name" || continue
        file=$work/layers/$name.ein
        # shellcheck disable=SC2086 # words
        layer_model "$name" $rest > "$file"
        echo "layer/$name/none $file --libs none"
        echo "layer/$name/all $file"
        echo "layer/$name/calls $file --baseline --costs $file.tsv"
    done <<< "$layers"
}

selected_figure() {
    [ -z "$only" ] && return 0
    case " $only " in *" $1 "* | *" cases/$1 "*) return 0 ;; esac
    return 1
}

# A table in which calls cost nothing, for the plan that has them alone: invented, and used for no
# other.
force_calls() { # FILE
    "$einnet" probe "$1" --baseline --kernels 0 --gpu "${name:-h200}" -o "$1.cu" 2> /dev/null
    sed -n -E "s/.*\"((conv|conv_data|gemm) f32 [^\"]*)\".*/${name:-h200}\t\1\t1/p" "$1.cu" \
        > "$1.tsv"
}

# Bytes of all inputs, weights and outputs: what a kernel that does all of it must move.
figure_bytes() { # FILE
    "$einnet" graph "$1" --json "${small[@]}" 2> /dev/null | "$python" -c '
import json, math, sys
graph = json.load(sys.stdin)
kinds = graph["inputs"] + graph["weights"] + graph["outputs"]
print(sum(4 * math.prod(t["shape"]) for t in kinds))' 2> /dev/null || echo 0
}

# Operations of all products, as their equations have them: with those whose operands are padding.
figure_flop() { # FILE
    "$einnet" graph "$1" --json "${small[@]}" -o "$work/figure.json" 2> /dev/null &&
        PYTHONPATH=bench/peers "$python" -c '
import graph, sys, work
print(work.network(graph.load(sys.argv[1]))[0])' "$work/figure.json" 2> /dev/null || echo 0
}

figure_build() { # NAME FILE OPTION...
    local base=$work/figures/$1 file=$2 key
    shift 2
    mkdir -p "$(dirname "$base")"
    case $base in */calls) force_calls "$file" ;; esac
    if ! "$einnet" emit "$file" "$@" "${small[@]}" ${name:+--gpu "$name"} -o "$base.cu.new" \
        --test "${base}_test.cu" 2> "$base.log"; then
        rm -f "$base.cu" "$base.cu.new"
        return
    fi
    if cmp -s "$base.cu" "$base.cu.new" && [ -x "$base.program" ] &&
        [ "$(cat "$base.flags" 2> /dev/null)" = "${flags[*]}" ]; then
        rm "$base.cu.new"
        return
    fi
    rm -f "$base.program" "$base.flags"
    mv "$base.cu.new" "$base.cu"
    "$einnet" pack "$file" "${small[@]}" -o "$base.weights" 2>> "$base.log" &&
        timeout -k 10 $compile_limit "$nvcc" "${flags[@]}" "${include[@]}" "${base}_test.cu" \
            "$base.cu" -o "$base.program" "${libraries[@]}" >> "$base.log" 2>&1 &&
        echo "${flags[*]}" > "$base.flags"
}

figure_run() { # NAME FILE
    local base=$work/figures/$1 key code status=ok json plan calls median
    key=$(figure_key "$base")
    ! done_already figures "$1" "$key" || return 0
    may_begin || return 1
    if [ ! -f "$base.flags" ]; then
        record figures "$1" "$key" "$1"$'\tfailed\t-\t-\t-\t-\t-\t-'
        echo "figure $1: failed: $(last_words "$base.log")"
        return 0
    fi
    seconds=$(limit $figure_limit)
    timeout -k 10 "$seconds" "$base.program" "$base.weights" --check --bench > "$base.json" \
        2> "$base.log" < /dev/null
    code=$?
    ! cut_off $code $figure_limit || return 1
    [ $code = 0 ] || status=$(status_of $code)
    json=$(tr '\n' ' ' < "$base.json")
    plan=$(sed -n -E 's|^// plan +([0-9]+) steps?, ([0-9.]+ [a-z]+) .*|\2\t\1|p' "$base.cu")
    calls=$(grep -c -E '^// +[0-9.]+ [mun]s .* (cuDNN|cuBLAS|cublasLt) ' "$base.cu")
    figure "$json" median_us
    median=$REPLY
    is_time "$median" || { median=-; [ "$status" != ok ] || status='no time'; }
    record figures "$1" "$key" "$(printf '%s\t%s\t%s\t%s\t%s\t%s\t%s' "$1" "$status" \
        "$median" "${plan:--$'\t'-}" "$calls" "$(figure_bytes "$2")" "$(figure_flop "$2")")"
    echo "figure $1: $status, $median us"
}

templates_all() {
    local line words list
    [ -n "$einnet" ] || { complain templates 'the generator does not run here'; return; }
    list=$(figure_list)
    while read -r line; do
        may_begin || break
        # shellcheck disable=SC2086 # words
        [ -z "$line" ] || in_parallel figure_build $line
    done <<< "$list"
    wait
    while read -r line; do
        [ -n "$line" ] || continue
        read -r -a words <<< "$line"
        figure_run "${words[0]}" "${words[1]}" || break
    done <<< "$list"
}

# The key of a figure: its program, and the GPU.
figure_key() { # BASE
    local sum=none
    [ ! -f "$1.cu" ] || sum=$(sha256sum < "$1.cu" | cut -c1-16)
    echo "$sum ${flags[*]} $title"
}

# The rows of all figures of the programs as they are now.
figure_rows() {
    local file
    printf 'figure\tstatus\tmedian_us\testimate\tsteps\tcalls\tbytes\tflop\n'
    [ -d "$work/figures" ] || return 0
    find "$work/figures" -name '*.row' | while read -r file; do
        [ "$(head -n 1 "$file")" != "$(figure_key "${file%.row}")" ] || tail -n +2 "$file"
    done | sort
}

figures_all() {
    local folder=$out/report code=0
    [ "$out" != bench/results/raw ] || folder=bench/results
    [ -n "$name" ] || name=$(device_name) || return 0
    if [ -n "$einnet" ] && [ -s "$out/$name.tsv" ] && [ $stopped = no ]; then
        timeout "$(limit $report_limit)" "$python" bench/fit.py --gpu "$name" --einnet "$einnet" \
            --judge-only --models models/*.ein -- "$out/$name.tsv" > "$out/fit.txt" 2>&1
        code=$?
    fi
    # 1: too few rows to say anything.
    [ $code -le 1 ] || complain figures "fit.py: $(status_of $code), $(last_words "$out/fit.txt")"
    timeout "$(limit $report_limit)" "$python" bench/figures.py --figures "$out/figures.tsv" \
        --limits "$out/limits.tsv" --builds "$out/build.tsv" --estimates "$out/fit.txt" \
        --out "$folder/$name.figures.md" --title "$title" ||
        complain figures "bench/figures.py: $(status_of $?)"
}
