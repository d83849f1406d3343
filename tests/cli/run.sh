#!/bin/sh
# The program from outside: exit codes, messages, what it does to files, and what it does when
# reading or writing fails.
. "$(dirname "$0")/../frame/lib.sh"

check 'the program builds' make -s all
cd "$work" || exit 1
mkdir bin
cp "$top/build/einnet" bin
einnet=$work/bin/einnet
cat > m.ein << 'END'
ein 1
model m
dim N = 2, C = 4
small C = 2
input x: f32[N,C]
weight w: f32[C,3] = randn(seed=1)
weight b: f32[3] = uniform(seed=2, lo=-1, hi=1)
output y
y[n,f] = relu(sum(c) x[n,c] * w[c,f] + b[f])
END
cp m.ein keep.ein

# expect CODE NAME COMMAND...: runs it with standard output in `out` and errors in `err`. An error
# has a message, and no run may take more than ten seconds.
expect() {
    want=$1
    name=$2
    shift 2
    within 10 "$@" > out 2> err < /dev/null
    got=$?
    if [ $got != "$want" ]; then
        echo "exit code $got instead of $want" >> err
        fail "$name" err
    elif [ "$want" -gt 1 ] && ! grep -q . err; then
        fail "$name: no message"
    else
        pass
    fi
}

# says TEXT: the last run's output or message holds it.
says() {
    if grep -q -F -e "$1" out err; then pass; else
        fail "$name: does not say '$1'" err
    fi
}

# ---- the command line itself ----

expect 0 'version' "$einnet" --version
says 'einnet 0.'
expect 0 'help' "$einnet" --help
sed -n 's/^  einnet \([a-z]*\) .*/\1/p' out > "$found"
[ "$(tr '\n' ' ' < "$found")" = 'import emit pack ' ] && pass || fail 'help: from ONNX to CUDA' out
expect 2 'no command' "$einnet"
expect 2 'unknown command' "$einnet" emti
says "did you mean 'emit'"
expect 2 'version as a command' "$einnet" version
says "unknown command 'version'; did you mean '--version'?"
"$einnet" --help > overview
expect 0 'help as a command' "$einnet" help
check 'the same help' cmp out overview
expect 2 'help for what is no command' "$einnet" help emti
says "did you mean 'emit'"
expect 2 'help for two' "$einnet" help emit check
expect 0 'help that is asked for help' "$einnet" help --help
expect 2 'unknown command, far from all' "$einnet" zzzzzzzz
expect 2 'a command with control bytes' "$einnet" "$(printf 'a\033[2Jb')"
if grep -q "$(printf '\033')" err; then fail 'control bytes come back escaped'; else pass; fi

commands='emit check fmt pack eval import graph equations probe'
for command in $commands; do
    expect 0 "help $command" "$einnet" help $command
    mv out asked
    expect 0 "$command --help" "$einnet" $command --help
    check "help $command is the same" cmp out asked
    [ "$(wc -l < out)" -le 40 ] && pass || fail "$command --help fits 40 lines"
    awk 'length > 100' out > "$found"
empty "$command --help fits 100 columns"
    cp out first
    expect 0 "$command -h" "$einnet" $command -h
    check "$command: -h is --help" cmp first out
    expect 2 "$command without a model" "$einnet" $command
    expect 2 "$command: unknown option" "$einnet" $command m.ein --ouput x
    says "unknown option '--ouput'"
    expect 5 "$command: help to a full device" sh -c "'$einnet' $command --help > /dev/full"
done
expect 0 'more than the GPU has' "$einnet" emit m.ein -o - --gpu nano --dim N=250000000
says '// memory    arena 0 B'
says '//           with inputs and outputs more than there is: Jetson Nano, 4 GB'
expect 0 'as much as the GPU has' "$einnet" emit m.ein -o - --gpu nano --dim N=100000000
! grep -q 'more than there is' out && pass || fail 'nothing is said of what fits' out
printf 'ein 1\nmodel q\ndim N = 1048576\ninput x: f32[N,N]\nweight w: f32[N,N] = randn()\noutput y
r = Relu(x)\nt = MatMul(r, w)\ny = Relu(t)\n' > years.ein
expect 0 'a product that takes longer than can be told' "$einnet" emit years.ein -o - --gpu nano
expect 2 'a hint at the nearest option' "$einnet" emit m.ein --headr=x
says "did you mean '--header'"
expect 2 'no abbreviations' "$einnet" emit m.ein --head x.h
says "did you mean '--header'"
expect 2 'a value where none goes' "$einnet" emit m.ein -o m.cu --small=1
says '--small takes no value'
expect 2 'no value' "$einnet" emit m.ein -o
expect 2 'an empty value' "$einnet" emit m.ein --output=
expect 2 'a value for a switch' "$einnet" emit m.ein -o - --small=yes
expect 2 'an option twice' "$einnet" emit m.ein -o a.cu -o b.cu
for command in 'emit -o -' graph costs 'import -o i.ein'; do
    expect 2 "an empty argument, $command" "$einnet" ${command%% *} '' ${command#"${command%% *}"}
    says 'is empty'
done
expect 2 'no rule but what is needed' "$einnet" emit m.ein -o - --rules=-
says "unknown rule ''"
expect 2 'an input without a file' "$einnet" eval m.ein --out r --in x
says "--in needs NAME=FILE.npy, not 'x'"
expect 2 'a size without a number' "$einnet" import m.onnx -o i.ein --dim N
says "with N from 1 on, not 'N'"
expect 2 'two models' "$einnet" emit m.ein m.ein -o a.cu
expect 2 'no output' "$einnet" emit m.ein
expect 2 'unknown GPU' "$einnet" emit m.ein -o - --gpu h20
says "did you mean 'h200'"
expect 2 'only which arithmetic' "$einnet" emit m.ein -o - --only-math
says '--only-math goes with --math'
expect 0 'only this arithmetic' "$einnet" emit m.ein -o - --only-math --math fp32
for pair in 'emit --prefer last' 'probe --prefer last' 'emit --baseline --rules split' \
    'check m.cu --baseline --depth 2' 'verify --baseline --states 2' \
    'emit --baseline --no-converge' 'emit --baseline --no-fingerprint' \
    'probe --estimates --part 1/2' 'probe --estimates --kernels 3' \
    'eval --out r --weights m.weights --blob B=b' 'costs --gpu h200'; do
    case $pair in probe*|emit*) output='-o -' ;; *) output= ;; esac
    expect 2 "a pair of options: $pair" "$einnet" ${pair%% *} m.ein ${pair#* } $output
    grep -q -e ' goes with --' -e ' does nothing beside --' err && pass || fail "$pair: why" err
done
expect 2 'unknown library' "$einnet" emit m.ein -o - --libs cudnn
says '--libs is all, cublas or none, not '
expect 2 'more branches than there are' "$einnet" emit m.ein -o - --branches 5
says '--branches needs a number from 1 to 4, not '
expect 2 'an option instead of a value' "$einnet" emit m.ein --math -o x.cu
says "no value for '--math'"
expect 2 'no depth' "$einnet" emit m.ein -o - --depth 0
expect 2 'a depth that is no number' "$einnet" emit m.ein -o - --depth 3x
expect 2 'states beyond reason' "$einnet" emit m.ein -o - --states 99999999999
expect 2 'an unknown rule' "$einnet" emit m.ein -o - --rules digits,splat
says "did you mean 'split'"
expect 2 'a rule that is needed' "$einnet" emit m.ein -o - --rules=-kernel
says "rule 'kernel' cannot be left out"
expect 0 'the rules, for no model' "$einnet" emit --rules help
says 'summation splitting'
expect 0 'the GPUs' "$einnet" probe --gpu help
says 'orin-nx'
expect 0 'statistics' "$einnet" emit m.ein -o - --stats --depth 1 --states 2 --rules split,operand
says 'problems 2 distinct 2 definitions'
expect 0 'a state budget' "$einnet" emit m.ein -o - --stats --states 1
says 'stop states'
expect 2 'no intensity' "$einnet" emit m.ein -o - --intensity -1
expect 0 'an intensity' "$einnet" emit m.ein -o - --intensity 1
expect 0 'all rules but one' "$einnet" emit m.ein -o - --rules=-basis,split
expect 0 'statistics of explain' "$einnet" explain m.ein --stats --no-converge --no-fingerprint
says 'stop saturated'
expect 2 'prefix' "$einnet" emit m.ein -o - --prefix '1x'
expect 2 'prefix with a newline' "$einnet" emit m.ein -o - --prefix "$(printf 'a\nb')"
# What an emitted file declares for itself, and names of C and the libraries, are no prefix.
"$einnet" emit "$top/models/resnet18.ein" --math fp16 --prefix own -o own.cu
"$einnet" emit "$top/models/resnet18.ein" --libs none --prefix own -o own2.cu
{
    sed -n -e 's/^static [^=(;]*[ *]\([A-Za-z]\w*\)[(;[].*/\1/p' \
        -e 's/^static [^=(;]*[ *]\([A-Za-z]\w*\) = .*/\1/p' -e 's/^#define \(\w*\).*/\1/p' \
        -e 's/^\(struct\|enum\) \(\w\w*\) {.*/\2/p' -e 's/.*\W\([A-Z]\w*\) = [0-9].*/\1/p' \
        own.cu own2.cu | grep -v "^own\|^OWN"
    echo 'memcpy snprintf M_PI cudaMalloc cudnnCreate cublasCreate relay int class' | tr ' ' '\n'
} | sort -u > names
[ "$(wc -l < names)" -gt 60 ] && pass || fail 'names of an emitted file' names
while read -r name; do
    "$einnet" emit m.ein --prefix "$name" --header own.h -o /dev/null
    grep -q "^typedef struct $name " own.h && echo "$name"
done < names > clashes
[ -s clashes ] && fail 'names that no prefix may be' clashes || pass
expect 2 'license with a newline' "$einnet" emit m.ein -o - --license "$(printf 'MIT\nint x;')"
printf 'ein 1\nmodel q\ninput x: f32[1048576,1048576]\noutput z, y\nz = Relu(x)
y[i,j] = x[j,i] + idx(i) * idx(j)\n' > blocks.ein
expect 5 'more blocks than a launch may have' "$einnet" emit blocks.ein -o -
says 'blocks.ein: y: its kernel would need 4294967296 blocks'
expect 5 'more blocks than a launch of a test may have' "$einnet" emit blocks.ein --test -
says 'blocks.ein: z: its kernel would need 4294967296 blocks'
for value in N N= N=-1 N=x N=1x =2 N=99999999999999999999 N=2.0 N=0x2; do
    expect 2 "--dim $value" "$einnet" emit m.ein -o - --dim "$value"
done
says "a number N of at most 18 digits, not 'N=0x2'"
expect 3 'a size of 0' "$einnet" emit m.ein -o - --dim N=0
printf '%s\n' 'ein 1' 'model pads' 'dim P = 1' 'input x: f32[1,3,4,4]' 'output y' \
    'weight k: f32[3,3,3,3] = randn()' 'y = Conv(x, k; pads=P)' > pads.ein
expect 0 'a dim that is no size may be 0' "$einnet" emit pads.ein -o pads.cu --dim P=0
expect 0 'it is 0' grep -q 'outputs *y: f32\[1,3,2,2\]' pads.cu
expect 2 'one dim twice' "$einnet" emit m.ein -o - --dim N=2 --dim N=3
"$einnet" emit m.ein -o - --dim Q=2 > out 2> err
case $? in 2 | 3) pass ;; *) fail 'an unknown dim' err ;; esac
expect 2 'pack without output' "$einnet" pack m.ein
expect 2 'eval without directory' "$einnet" eval m.ein
expect 2 'fmt: --check and -o' "$einnet" fmt --check m.ein -o x.ein
[ -e a.cu ] && fail 'a usage error writes no file' || pass
for environment in POSIXLY_CORRECT=1 LC_ALL=C.UTF-8; do
    expect 0 "options after the model, $environment" env $environment "$einnet" emit m.ein -o x.cu
done
expect 0 'options before the model' "$einnet" emit -o y.cu --gpu h200 -- m.ein
check 'the order of arguments does not matter' cmp x.cu y.cu

# ---- what commands write ----

expect 0 'emit to a file' "$einnet" emit m.ein -o m.cu --header m.h --test m_test.cu
[ ! -s out ] && [ -s m.cu ] && [ -s m.h ] && [ -s m_test.cu ] && pass ||
    fail 'emit writes three files'
expect 0 'emit to standard output' "$einnet" emit m.ein -o -
check 'the same bytes on standard output' cmp out m.cu
"$einnet" emit - -o stdin.cu < m.ein
sed 's/-\.ein\|stdin/m.ein/' stdin.cu > out
[ "$(wc -l < stdin.cu)" = "$(wc -l < m.cu)" ] && pass || fail 'a model from standard input'
expect 0 'check: equal' "$einnet" check m.ein m.cu --header m.h --test m_test.cu
[ ! -s out ] && pass || fail 'check: nothing to say'
expect 1 'check: other sizes differ' "$einnet" check m.ein m.cu --dim N=3
sed 's/relu/RELU/' m.cu > changed.cu
cp changed.cu changed.copy
expect 1 'check: a changed file' "$einnet" check m.ein changed.cu
cp out ours
check 'check writes nothing' cmp changed.cu changed.copy
diff -U 3 changed.cu m.cu | sed 1,2d > theirs
sed 1,2d ours > ours.body
check 'the difference is that of diff -u' cmp theirs ours.body
: > nothing
expect 1 'check: an empty file' "$einnet" check m.ein nothing
printf 'no newline' > short
expect 1 'check: no newline at the end' "$einnet" check m.ein short
says 'No newline at end of file'
expect 1 'check: a header that differs' "$einnet" check m.ein m.cu --header m.cu
expect 5 'check: no such file' "$einnet" check m.ein absent.cu

expect 0 'fmt' "$einnet" fmt m.ein
cp out canonical.ein
expect 0 'fmt twice' "$einnet" fmt canonical.ein
check 'fmt of fmt changes nothing' cmp out canonical.ein
expect 0 'fmt --check: canonical' "$einnet" fmt --check canonical.ein
sed 's/dim N = 2, /dim   N=2,/' canonical.ein > loose.ein
expect 1 'fmt --check: not canonical' "$einnet" fmt --check loose.ein
says '+dim N = 2'
expect 0 'fmt in place' "$einnet" fmt loose.ein -o loose.ein
check 'fmt in place is fmt' cmp loose.ein canonical.ein
expect 0 'graph' "$einnet" graph m.ein
says 'f32[2,4]'
expect 0 'graph --json' "$einnet" graph --json m.ein -o g.json
check 'graph --json is JSON' python3 -m json.tool g.json
expect 0 'equations' "$einnet" equations m.ein
says 'sum('
# A form whose numerator and denominator no number holds together.
printf 'ein 1\ninput x: f32[9]\noutput y\ny[i,k] = [(i*2147483648+k)%%4503599627370496 == 0] *
    x[(i*2147483648+k)/4503599627370496] where i in 0:9, k in 0:5, pad x 0\n' > lattice.ein
expect 0 'equations of large numbers' "$einnet" equations lattice.ein
says 'x[(2147483648*i0+i1)/4503599627370496]'
expect 2 'probe to nowhere' "$einnet" probe m.ein
says 'where to?'
expect 2 'probe over its second model' "$einnet" probe keep.ein m.ein -o m.ein
says 'is the model itself'
expect 2 'probe for an unknown GPU' "$einnet" probe m.ein --gpu h2000 -o p.cu
says "did you mean 'h200'"
expect 5 'probe of a model that is not there' "$einnet" probe m.ein none.ein -o p.cu
[ -e p.cu ] && fail 'probe writes nothing then' || pass
expect 0 'probe' "$einnet" probe m.ein keep.ein -o -
says 'gemm f32 fma b=1 m=2 n=3 k=4 '

expect 0 'pack' "$einnet" pack m.ein -o m.weights
[ "$(head -c 8 m.weights)" = EINWGHT1 ] && [ "$(wc -c < m.weights)" = 768 ] && pass || fail 'packed'
expect 0 'pack to standard output' "$einnet" pack m.ein -o -
check 'the same bytes in a pipe' cmp out m.weights
expect 0 'eval' "$einnet" eval m.ein --out r1
expect 0 'eval with packed weights' "$einnet" eval m.ein --weights m.weights --out r2
check 'the same values' cmp r1/y.npy r2/y.npy
expect 0 'eval: results as inputs' "$einnet" eval m.ein --small --out r1
# An input may state where its values come from as a weight does, by numbers of its own.
for type in 'f32 randn(seed=9,std=0.5)' 'f16 uniform(seed=3,lo=-2,hi=5)' 'f32 zeros()' \
    'f32 ones()' 'i64 uniform(seed=3,lo=-7,hi=900)'; do
    for kind in input weight; do
        printf 'ein 1\nmodel q\n%s x: %s[33] = %s\noutput y\ny[i] = x[i]\n' $kind $type \
            > source_$kind.ein
    done
    expect 0 "eval: an input of $type" "$einnet" eval source_input.ein --out r_input
    expect 0 "eval: a weight of $type" "$einnet" eval source_weight.ein --out r_weight
    check "the same values, $type" cmp r_input/y.npy r_weight/y.npy
done
expect 3 'eval: type of an input' "$einnet" eval m.ein --in x=r1/y.npy --out r3
says 'f32[2,4]'
expect 2 'eval: unknown input' "$einnet" eval m.ein --in xx=r1/y.npy --out r3
expect 2 'eval: unknown weight' "$einnet" eval m.ein --weight v=r1/y.npy --out r3
expect 2 'eval: unknown blob' "$einnet" eval m.ein --blob B=x --out r3
expect 3 'eval: weights of other sizes' "$einnet" eval m.ein --small --weights m.weights --out r3
head -c 700 m.weights > cut.weights
expect 3 'eval: weights cut off' "$einnet" eval m.ein --weights cut.weights --out r3
{ head -c 600 m.weights && printf x && tail -c +602 m.weights; } > bad.weights
expect 3 'eval: weights damaged' "$einnet" eval m.ein --weights bad.weights --out r3
expect 3 'eval: not weights' "$einnet" eval m.ein --weights m.cu --out r3
[ -e r3 ] && fail 'a failed eval makes no directory' || pass
printf 'ein 1\nmodel q\ninput x: f32[2]\noutput "a/../b %%"\n"a/../b %%"[i] = x[i]\n' > quoted.ein
expect 0 'eval: names as file names' "$einnet" eval quoted.ein --out r4
[ -s 'r4/a%2F..%2Fb%20%25.npy' ] && pass || fail 'bytes of names are escaped'
printf 'ein 1\nmodel q\nblob B = "b.safetensors"\ninput x: f32[2]\nweight w: f32[2] = B "k"
output y\ny[i] = x[i] * w[i]\n' > blob.ein
# safetensors TYPE NAME: a file of one tensor of two elements, 8 or 16 bytes
safetensors() {
    bytes=8
    [ $1 = F32 ] || bytes=16
    header=$(printf '{"%s":{"dtype":"%s","shape":[2],"data_offsets":[0,%02d]}}' $2 $1 $bytes)
    printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    head -c $bytes /dev/zero
}
safetensors F32 k > b.safetensors
expect 0 'a blob' "$einnet" eval blob.ein --out r5
safetensors F32 v > b.safetensors
expect 3 'a blob without the tensor' "$einnet" eval blob.ein --out r6
says "b.safetensors: no tensor 'k'"
safetensors F64 k > other.safetensors
expect 3 'a blob of another type' "$einnet" eval blob.ein --blob B=other.safetensors --out r6
says "other.safetensors: tensor 'k' is f64[2], but 'w' is f32[2]"
safetensors F8_E4M3 k > other.safetensors
expect 3 'a blob of a type not known' "$einnet" eval blob.ein --blob B=other.safetensors --out r6
mkdir linked
ln -s ../b.safetensors linked/b.safetensors
cp blob.ein linked/m.ein
expect 3 'a blob by a link out of the directory' "$einnet" pack linked/m.ein -o blob.weights
says "leads out of the model's directory; use --blob"
expect 5 'a blob that is not there' "$einnet" eval blob.ein --blob B=no.safetensors --out r6
# A header of brackets that are all open must not take its length squared.
awk 'BEGIN {
    for (i = 0; i < 400000; i++) printf "{\"a\":"
    printf "1"
    for (i = 0; i < 400000; i++) printf "}"
}' > nested
printf '\001\237\044\0\0\0\0\0' > other.safetensors
cat nested >> other.safetensors
[ "$(wc -c < nested)" = 2400001 ] || fail 'the header has another length'
expect 3 'a blob with a nested header' "$einnet" eval blob.ein --blob B=other.safetensors --out r6
rm -f blob.weights nested
for path in /etc/hostname ../m.ein a/../../m.ein ''; do
    printf 'ein 1\nmodel q\nblob B = "%s"\ninput x: f32[2]\nweight w: f32[2] = B "w"\noutput y
y[i] = x[i] * w[i]\n' "$path" > blob.ein
    expect 3 "blob outside: $path" "$einnet" pack blob.ein -o blob.weights
done
printf 'ein 1\nmodel q\ninput x: f32[2]\nweight w: f32[2]\noutput y
y[i] = x[i] * w[i]\n' > none.ein
expect 3 'a weight without source' "$einnet" pack none.ein -o none.weights
says "'w'"
expect 0 'a weight without source is emitted' "$einnet" emit none.ein -o none.cu
[ -e none.weights ] || [ -e blob.weights ] && fail 'a failed pack writes nothing' || pass

# ---- several files ----

expect 5 'a header that cannot be written' "$einnet" emit m.ein -o - --header no/where/m.h
[ -s out ] && fail 'a program without its header' || pass
expect 0 'a form' "$einnet" emit m.ein --form 2 -o form.cu
expect 0 'a form is checked' "$einnet" check m.ein form.cu --form 2
expect 2 'names are none of a proof' "$einnet" verify m.ein --prefix q
printf 'ein 1\nmodel q\ninput x: f32[64,15000000]\nweight w: f32[15000000,2]\noutput y
y[i,j] = sum(k) x[i,k] * w[k,j]\n' > long.ein
expect 0 'a long proof on a terminal' script -qec "'$einnet' verify long.ein" /dev/null
says 'proving: '
says "$(printf '\r\033[Kthe plan computes')"
printf 'ein 1\nmodel q\ninput x: f32[2]\noutput y\ny[i] = x[i] * 1e39\n' > large.ein
expect 3 'a number beyond f32' "$einnet" emit large.ein -o -
says "large.ein:5:15: a number beyond f32's range"

# ---- candidates ----

expect 0 'explain' "$einnet" explain m.ein
says 'chosen'
says 'runner-up'
says 'as given'
printf 'ein 1\nmodel q\ninput x: f32[1,4,8,8]\nweight k: f32[4,4,3,3] = randn(std=0.1)\noutput y
up.conv = Conv(x, k; pads=1)\ny = Relu(up.conv)\n' > step.ein
expect 0 'explain --help' "$einnet" explain --help
says 'VALUE is a contraction'
expect 0 'explain: as the file calls the step' "$einnet" explain step.ein y
says 'up.conv'
expect 3 'explain: what a derivation made' "$einnet" explain step.ein up.conv.product
says "did you mean 'up.conv'"
expect 3 'explain: a contraction misspelt' "$einnet" explain step.ein up.cnv
says "did you mean 'up.conv'"
expect 0 'explain --all --json' "$einnet" explain m.ein --all --json -o e.json
check 'explain --json is JSON' python3 -m json.tool e.json
last=$(grep -c '"id": ' e.json)
last=$((last - 1))
for id in 0 $last; do
    expect 0 "verify --candidate $id" "$einnet" verify m.ein --candidate $id
    says "candidate $id computes what the model says"
done
expect 3 'verify: no such candidate' "$einnet" verify m.ein --candidate $((last + 1))
says "no candidate $((last + 1)): 'y.sum' has 0 to $last"
expect 0 'verify: the contraction by its name' "$einnet" verify m.ein y --candidate 0
expect 3 'verify: an unknown contraction' "$einnet" verify m.ein z --candidate 0
says "no contraction is called 'z'"
for id in '' -1 x 1x 1.0 9999999999; do
    expect 2 "verify: --candidate '$id'" "$einnet" verify m.ein --candidate "$id"
done
expect 2 'verify: a value without --candidate' "$einnet" verify m.ein y
printf 'ein 1\nmodel q\ninput x: f32[4,4]\noutput y, z
y = MatMul(x, x)\nz = MatMul(x, y)\n' > two.ein
expect 3 'verify: which contraction' "$einnet" verify two.ein --candidate 0
says "'y' and others"
expect 0 'verify: the second one' "$einnet" verify two.ein z --candidate 0

# ---- reading that fails ----

mkdir directory
: > empty
mkfifo pipe
head -c 100000 /dev/urandom > random
printf 'ein 1\nmodel m\ny = Convv(x)\n' > wrong.ein
for command in 'emit -o o.cu' 'check m.cu' fmt 'pack -o o.w' 'eval --out o' graph equations; do
    set -- $command
    first=$1
    shift
    for file in absent directory; do
        expect 5 "$first: $file" "$einnet" "$first" $file "$@"
        says "$file"
    done
    for file in empty random wrong.ein /dev/null; do
        expect 3 "$first: $file" "$einnet" "$first" $file "$@"
    done
    expect 3 "$first: an endless device" "$einnet" "$first" /dev/zero "$@"
done
expect 3 'weights of an endless device' "$einnet" pack m.ein -o o.w --weight w=/dev/zero
expect 3 'a blob of an endless device' "$einnet" eval m.ein --out o --weights /dev/zero
expect 5 'a pipe that nobody writes to' "$einnet" emit pipe -o o.cu
expect 5 'import: a pipe that nobody writes to' "$einnet" import pipe -o i.ein
for file in o.cu o.w o; do
    [ -e $file ] && fail "an error leaves no $file" || pass
done
expect 5 'import: no such file' "$einnet" import absent.onnx -o i.ein
says 'einnet: absent.onnx: No such file'
expect 3 'import: not a model' "$einnet" import random -o i.ein
expect 3 'import: empty' "$einnet" import empty -o i.ein
cp random random.onnx
expect 3 'emit: an ONNX model' "$einnet" emit random.onnx -o o.cu
says "'einnet import'"
[ -e i.ein ] && fail 'a failed import writes nothing' || pass
(sleep 1; cat m.ein) | "$einnet" emit /dev/stdin -o piped.cu 2> err && pass ||
    fail 'a slow pipe' err
{ sleep 1; cat m.ein > pipe; } &
expect 0 'a pipe whose writer comes later' "$einnet" emit pipe -o piped.cu
wait
awk 'BEGIN { for (i = 0; i < 70; i++) printf "%01048576d\n", 0 }' > huge
expect 3 'a text over the limit' "$einnet" emit huge -o o.cu
rm huge

# ---- writing that fails ----

left() {
    find . -name '*.??????' -newer keep.ein ! -name '*.weights' > "$found"
empty "no temporary: $1"
}
expect 2 'output over the model' "$einnet" emit m.ein -o m.ein
ln m.ein link.ein
ln -s m.ein symbolic.ein
expect 2 'output over a link to the model' "$einnet" emit m.ein -o link.ein
expect 2 'output over a symbolic link to the model' "$einnet" emit m.ein -o symbolic.ein
expect 2 'pack over the model' "$einnet" pack m.ein -o m.ein
expect 2 'graph over the model' "$einnet" graph m.ein --json -o m.ein
expect 2 'output over the model on standard input' sh -c "'$einnet' emit - -o m.ein < m.ein"
says 'is the model itself'
check 'the model is as it was' cmp m.ein keep.ein

# Neither over what else the command reads: tables, values and the model's blobs.
"$einnet" costs /dev/null -o table.tsv
cp table.tsv keep.tsv
ln table.tsv linked.tsv
for command in 'emit -o' 'emit --header' 'emit --test' 'probe -o' 'explain -o'; do
    expect 2 "$command over a table" "$einnet" ${command% *} m.ein --costs table.tsv \
        ${command#* } ./table.tsv
    says "'./table.tsv' is read by --costs"
    expect 2 "$command over a link to a table" "$einnet" ${command% *} m.ein --costs table.tsv \
        ${command#* } linked.tsv
done
for option in '' --estimates; do
    expect 2 "costs $option over a table" "$einnet" costs /dev/null table.tsv $option -o linked.tsv
    says 'is one of the tables that are read'
done
check 'the table is as it was' cmp table.tsv keep.tsv
mkdir values data
printf 'ein 1\nmodel q\nblob B = "b.safetensors"\ninput x: f32[2]\nweight w: f32[2] = B "k"
weight v: f32[2] = zeros()\noutput x.npy\nx.npy = Add(x, w)\n' > data/q.ein
sed 's/x\.npy/y/g' data/q.ein > data/y.ein
safetensors F32 k > data/b.safetensors
ln data/b.safetensors data/hard
ln -s b.safetensors data/soft
"$einnet" eval data/y.ein --small --out values && cp data/b.safetensors keep.safetensors
python3 - << 'END'
import struct
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
head += " " * (117 - len(head)) + "\n"
for name in "values/y.npy", "values/v.npy":
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + bytes(8))
END
cp values/y.npy keep.npy
for path in data/b.safetensors data/../data/b.safetensors data/hard data/soft; do
    for command in 'emit -o' 'emit --header' 'pack -o' 'fmt -o' 'graph -o' 'equations -o'; do
        expect 2 "$command over a blob, $path" "$einnet" ${command% *} data/y.ein \
            ${command#* } $path
        says "is the file of the model's blob 'B'"
    done
done
check 'the blob is as it was' cmp data/b.safetensors keep.safetensors
cp data/b.safetensors other.safetensors
expect 2 'pack over --blob' "$einnet" pack data/y.ein --blob B=other.safetensors \
    -o ./other.safetensors
says 'is read by --blob'
expect 2 'pack over --weight' "$einnet" pack data/y.ein --weight v=values/v.npy -o values/v.npy
says 'is read by --weight'
expect 2 'eval over an input' "$einnet" eval data/y.ein --in x=values/y.npy --out ./values
says "'./values/y.npy' is read by --in"
expect 2 'eval over a weight' "$einnet" eval data/y.ein --weight w=values/y.npy --out values
expect 2 'eval over packed weights' "$einnet" eval data/y.ein --weights values/y.npy --out values
sed 's/b\.safetensors/values\/y.npy/' data/y.ein > inside.ein
expect 2 'eval over a blob' "$einnet" eval inside.ein --out values
check 'the values are as they were' cmp values/y.npy keep.npy
expect 0 'eval of what another eval may write over' "$einnet" eval data/y.ein \
    --in x=values/y.npy --out other
expect 0 'a device is read and written' "$einnet" emit m.ein --costs /dev/null -o /dev/null
expect 2 'two outputs in one file' "$einnet" emit m.ein -o two.cu --header two.cu
expect 2 'two outputs in one new file by two paths' "$einnet" emit m.ein -o new.cu \
    --header ./directory/../new.cu
[ -e new.cu ] && fail 'nothing is written then' || pass
expect 0 'two outputs to nowhere' "$einnet" emit m.ein -o /dev/null --header /dev/null
expect 2 'two outputs on standard output' "$einnet" emit m.ein -o - --header -
expect 5 'a second file that cannot be made' "$einnet" emit m.ein -o new.cu --header absent/x.h
[ -e new.cu ] && fail 'then the first one is not made either' || pass
expect 5 'a third file that has no room' "$einnet" emit m.ein -o new.cu --header new.h \
    --test /dev/full
[ -e new.cu ] || [ -e new.h ] && fail 'then none is made' || pass
# A place that cannot be taken once another one is, and a signal in between.
cat > taken.c << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
int rename(const char *from, const char *to) {
    static int calls;
    int (*move)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    if (++calls == 2 && getenv("REFUSED")) {
        errno = EACCES;
        return -1;
    }
    if (getenv("ENDED")) raise(SIGTERM);
    return move(from, to);
}
END
${CC:-cc} -shared -fPIC -o taken.so taken.c -ldl
for old in new.cu new.h 'new.cu new.h' ''; do
    rm -f new.cu new.h
    for file in $old; do echo old > $file; done
    expect 5 "a second place that is refused, over '$old'" env REFUSED=1 LD_PRELOAD=./taken.so \
        "$einnet" emit m.ein -o new.cu --header new.h
    says 'new.h: Permission denied'
    for file in new.cu new.h; do
        case $old in
            *$file*) [ "$(cat $file)" = old ] ;;
            *) [ ! -e $file ] ;;
        esac && pass || fail "then $file is what it was"
    done
done
echo old > new.cu
ENDED=1 LD_PRELOAD=./taken.so "$einnet" emit m.ein -o new.cu --header new.h 2> err
[ $? = 143 ] && cmp -s new.cu m.cu && cmp -s new.h m.h && pass ||
    fail 'a signal between two places comes behind the last one' err
rm new.cu new.h
for command in 'emit -o' 'pack -o' 'fmt -o' 'graph -o' 'equations -o'; do
    expect 5 "$command /dev/full" "$einnet" ${command% *} m.ein -o /dev/full
    says 'No space'
    expect 5 "$command a directory" "$einnet" ${command% *} m.ein -o directory
    expect 5 "$command in no directory" "$einnet" ${command% *} m.ein -o absent/x
    expect 5 "$command - closed" sh -c "'$einnet' ${command% *} m.ein -o - >&-"
    expect 5 "$command - full" sh -c "'$einnet' ${command% *} m.ein -o - > /dev/full"
done
expect 5 'a pipe that nobody reads' "$einnet" emit m.ein -o pipe
cat pipe > read.cu &
expect 0 'a pipe with a reader' "$einnet" emit m.ein -o pipe
wait
check 'the reader gets the same bytes' cmp read.cu m.cu
expect 5 'eval into a file' "$einnet" eval m.ein --out m.cu
expect 5 'eval in no directory' "$einnet" eval m.ein --out absent/x
# The second of three results cannot be written.
cat > three.ein << 'END'
ein 1
model three
input x: f32[400]
output a, b, c
a = Relu(x)
b = Tanh(x)
c = Sigmoid(x)
END
expect 0 'eval of three results' "$einnet" eval three.ein --out three
rm three/[bc].npy
mkdir three/b.npy
touch -d '2001-01-01' three/a.npy
echo old > three/a.npy
expect 5 'eval of three results, one of them in vain' "$einnet" eval three.ein --out three
[ "$(cat three/a.npy)" = old ] && [ ! -e three/c.npy ] && pass || fail 'then none is written'
expect 5 'eval without room' sh -c "ulimit -f 1; '$einnet' eval three.ein --out new3"
[ -e new3 ] && fail 'then no directory is made' || pass
# As long as names may be, and paths.
long=$(awk 'BEGIN { for (i = 0; i < 252; i++) printf "n"; print ".cu" }')
expect 0 'a name of 255 bytes' "$einnet" emit m.ein -o "$long"
expect 0 'the same in a directory' "$einnet" emit m.ein -o "directory/$long" --header x.h
cmp -s "$long" m.cu && cmp -s "directory/$long" m.cu && pass || fail 'with the same bytes' err
expect 5 'a name of 256 bytes' "$einnet" emit m.ein -o "n$long"
says 'File name too long'
rm "$long" "directory/$long" x.h
cp m.cu old.cu
cp wrong.ein broken.ein
expect 3 'an error after a good file' "$einnet" emit broken.ein -o old.cu
check 'the old file stays' cmp old.cu m.cu
touch -d '2001-01-01' old.cu
expect 0 'the same bytes again' "$einnet" emit m.ein -o old.cu
[ old.cu -ot m.ein ] && pass || fail 'an unchanged file keeps its time stamp'
ln -s target.cu through.cu
: > target.cu
expect 0 'through a symbolic link' "$einnet" emit m.ein -o through.cu
[ -L through.cu ] && cmp -s target.cu m.cu && pass || fail 'the link stays, its target is written'
ln -s absent.cu dead.cu
ln -s round.cu round.cu
for path in dead.cu round.cu; do
    expect 5 "through a symbolic link to nothing, $path" "$einnet" emit m.ein -o $path
    [ -L $path ] && pass || fail "$path stays a link"
done
says 'round.cu: Too many levels of symbolic links'
expect 5 'over a symbolic link to nothing' "$einnet" emit m.ein -o new.cu --header dead.cu
says 'dead.cu: a symbolic link to a file that does not exist'
[ -e new.cu ] || [ -e absent.cu ] && fail 'then nothing is written' || pass
chmod 640 target.cu
expect 0 'over a file with permissions' "$einnet" emit m.ein -o target.cu --dim N=3
[ "$(stat -c %a target.cu)" = 640 ] && pass || fail 'permissions stay'
left 'after all that'

# Limits on memory and file size, and permissions, which mean nothing to root.
expect 5 'no memory' sh -c "ulimit -v 60000; '$einnet' eval m.ein --out r5 --dim N=100000000"
expect 5 'a file over the limit of the system' \
    sh -c "ulimit -f 1; '$einnet' emit m.ein -o limited.cu"
[ -e limited.cu ] && fail 'no file cut at the limit' || pass
mkdir closed
cp m.ein closed/secret.ein
chmod 000 closed/secret.ein
chmod 555 closed
user=
[ "$(id -u)" != 0 ] || user='setpriv --reuid=65534 --regid=65534 --clear-groups'
if chmod 755 . && $user test -x "$einnet" 2> /dev/null; then  # every directory above too
    expect 5 'a directory without permission to write' $user "$einnet" emit m.ein -o closed/x.cu
    expect 5 'a file without permission to read' $user "$einnet" emit closed/secret.ein -o -
fi
chmod 755 closed

# A signal while writing leaves the old file and no temporary.
cp m.weights old.weights
sed 's/N = 2, C = 4/N = 2, C = 8000000/; s/C = 2/C = 3/' m.ein > large.ein
for signal in INT TERM HUP; do
    "$einnet" pack large.ein -o old.weights 2> err &
    pid=$!
    tries=0
    until ls old.weights.* > /dev/null 2>&1 || [ $tries = 500 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    # Background jobs of a script ignore SIGINT, and the program keeps that.
    [ $signal = INT ] && sent=TERM || sent=$signal
    kill -s $sent $pid
    wait $pid
    [ $? -gt 128 ] && cmp -s old.weights m.weights && pass || fail "SIG$signal while packing" err
done
# The worst moment: when the file is there and its name is not known yet.
cat > early.c << 'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
int mkstemp(char *name) {
    int (*create)(char *) = (int (*)(char *))dlsym(RTLD_NEXT, "mkstemp");
    int fd = create(name);
    raise(SIGTERM);
    return fd;
}
END
${CC:-cc} -shared -fPIC -o early.so early.c -ldl
LD_PRELOAD=$work/early.so "$einnet" pack m.ein -o old.weights 2> err
[ $? = 143 ] && cmp -s old.weights m.weights && pass || fail 'a signal as the temporary begins' err
left 'after signals'

# Files that become shorter while they are read. A text was read before anything is printed.
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%0100d\n", i }' > shrinking
timeout 20 "$einnet" check m.ein shrinking > pipe 2> err &
pid=$!
exec 3< pipe
read -r first <&3
: > shrinking
cat <&3 > rest
exec 3<&-
wait $pid
[ $? = 1 ] && grep -q '^-0*3999$' rest && pass || fail 'a text that becomes shorter' err
# Values that are mapped: the second pass of pack waits for the pipe while its temporary is there.
printf 'ein 1\nmodel q\nblob B = "large.safetensors"\ninput x: f32[2]\nweight v: f32[2]
weight w: f32[20000000] = B "k"\noutput y\ny[i] = x[i] * v[i] + w[i] where i in 0:2\n' > shrinks.ein
header='{"k":{"dtype":"F32","shape":[20000000],"data_offsets":[0,80000000]}}'
printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" > large.safetensors
truncate -s $((8 + ${#header} + 80000000)) large.safetensors
cp m.weights old.weights
timeout 20 "$einnet" pack shrinks.ein --weight v=pipe -o old.weights 2> err &
pid=$!
timeout 10 sh -c "cat values/v.npy > pipe"
tries=0
until ls old.weights.* > /dev/null 2>&1 || [ $tries = 100 ]; do
    sleep 0.02
    tries=$((tries + 1))
done
: > large.safetensors
timeout 10 sh -c "cat values/v.npy > pipe"
wait $pid
[ $? = 5 ] && grep -q 'became shorter' err && pass || fail 'a blob that becomes shorter' err
check 'the old weights stay' cmp old.weights m.weights
rm large.safetensors
left 'after files that became shorter'
finish
