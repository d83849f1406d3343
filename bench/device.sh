# Sourced by gpu.sh: what results depend on beside the code, and what the device and its libraries
# reach.

device_limit=60         # seconds that a small program may take
clock_limit=20

# What the compiler has to be told goes into `include` and `libraries`: cuDNN and cuBLAS stand where
# nvcc looks, or in the Python packages that carry them. The toolkit's own headers come first, and
# programs find its libraries wherever the loader looks.
find_libraries() {
    local folder file name toolkit
    include=()
    libraries=(-lcudnn -lcublas -lcublasLt)
    toolkit=$(readlink -f "$(command -v "$nvcc")")
    toolkit=${toolkit%/bin/*}
    for folder in "$toolkit/lib64" "$toolkit/targets/x86_64-linux/lib"; do
        [ ! -d "$folder" ] || libraries+=(-Xlinker "-rpath=$folder")
    done
    compile_device && return
    mkdir -p "$work/lib"
    for folder in $(timeout $device_limit python3 -c 'import site, sys
print(*[p + "/nvidia" for p in site.getsitepackages() + sys.path if p])' 2> /dev/null); do
        [ -d "$folder" ] || continue
        for file in "$folder"/*/include; do
            if [ -f "$file/cudnn.h" ] || [ -f "$file/cublas_v2.h" ]; then
                include+=(-isystem "$file")
            fi
        done
        for file in "$folder"/*/lib/libcudnn.so* "$folder"/*/lib/libcublas{,Lt}.so*; do
            [ -f "$file" ] || continue
            name=${file##*/}
            ln -sf "$file" "$work/lib/${name%%.so*}.so"
            libraries+=(-Xlinker "-rpath=${file%/*}")
        done
        [ ${#include[@]} = 0 ] || break
    done
    libraries=(-L "$work/lib" "${libraries[@]}")
    compile_device
}

compile_device() {
    rm -f "$work/device"
    timeout $compile_limit "$nvcc" "${include[@]}" bench/device.cu -o "$work/device" \
        "${libraries[@]}" > "$work/device.log" 2>&1
}

# ask_smi FIELDS: of the first GPU, between tabs. One that hangs is not asked again.
ask_smi() {
    [ ! -f "$work/no_smi" ] || return 0
    timeout -k 5 $clock_limit nvidia-smi "--query-gpu=$1" --format=csv,noheader \
        > "$work/smi" 2> /dev/null
    case $? in 124 | 137) touch "$work/no_smi" ;; esac
    head -n 1 "$work/smi" | sed 's/, /\t/g'
}

clocks() {
    ask_smi clocks.sm,clocks.mem,temperature.gpu,power.draw
}

# Sets `gpu`.
record_device() {
    local code
    : > "$work/device.tsv"
    if ! find_libraries; then
        complain device "bench/device.cu does not build: $(last_words "$work/device.log")"
        return
    fi
    timeout -k 10 $device_limit "$work/device" > "$work/device.tsv" 2>> "$work/device.log"
    code=$?
    case $code in
    0) gpu=yes ;;
    77) ;;
    *) complain device "bench/device.cu: $(status_of $code)," \
        "$(last_words "$work/device.log")" ;;
    esac
    {
        printf 'nvcc\t%s\n' "$("$nvcc" --version | grep release | sed 's/.*release //')"
        printf 'host\t%s cores, %s\n' "$(nproc)" \
            "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2> /dev/null | head -n 1)"
        printf 'clocks_idle\t%s\n' "$(clocks | tr '\t' ' ')"
        printf 'smi\t%s\n' "$(ask_smi driver_version,clocks.max.sm,clocks.max.mem,power.limit)"
    } >> "$work/device.tsv"
    # No job of this shell, which waits for its jobs.
    [ $gpu = no ] || ("$work/device" --hold $$ < /dev/null > /dev/null 2>&1 &)
}

# gpu_field NAME: what device.tsv says of it.
gpu_field() {
    sed -n "s/^$1\t//p" "$work/device.tsv" 2> /dev/null
}

# What launches cost, as more lines of device.tsv; built for this GPU, whose kernels may be launched
# early. Measured once.
record_launches() {
    local key
    key="$(sha256sum < bench/launch.cu | cut -c1-16) $title $arch"
    if done_already launches all "$key"; then
        tail -n +2 "$work/launches/all.row" >> "$work/device.tsv"
        return
    fi
    if ! timeout $compile_limit "$nvcc" -O3 -std=c++14 "-arch=$arch" bench/launch.cu \
        -o "$work/launch" > "$work/launch.log" 2>&1; then
        complain device "bench/launch.cu does not build: $(last_words "$work/launch.log")"
        return
    fi
    if ! timeout -k 10 $device_limit "$work/launch" > "$work/launch.tsv" 2>> "$work/launch.log"
    then
        complain device "bench/launch.cu fails: $(last_words "$work/launch.log")"
        return
    fi
    record launches all "$key" "$(cat "$work/launch.tsv")"
    cat "$work/launch.tsv" >> "$work/device.tsv"
}

# The file of this GPU's limits.
limits_file() {
    echo "$work/limits/${title//[^A-Za-z0-9]/_}.tsv"
}

# What cannot be had is a line that begins with '#', from the program or from here.
limits_all() {
    local key code file log=$work/limits/log
    key="$(sha256sum < bench/limits.cu | cut -c1-16) $title ${flags[*]}"
    ! done_already limits all "$key" || return 0
    may_begin || return 0
    mkdir -p "$work/limits"
    file=$(limits_file)
    if ! timeout $compile_limit "$nvcc" "${flags[@]}" "${include[@]}" bench/limits.cu \
        -o "$work/limits/program" "${libraries[@]}" > "$log" 2>&1; then
        complain limits "bench/limits.cu does not build: $(last_words "$log")"
        return
    fi
    seconds=$(limit 120)
    timeout -k 10 "$seconds" "$work/limits/program" > "$file" 2> "$log" < /dev/null
    code=$?
    ! cut_off $code 120 || return 0
    if [ $code = 0 ]; then
        record limits all "$key" "$(cat "$file")"
        echo "limits: $(grep -c -v '^#' "$file") figures"
    else
        echo "# not whole: $(status_of $code)" >> "$file"
        complain limits "$(status_of $code): $(last_words "$log")"
    fi
}
