#!/bin/sh
# The program builds without warnings from its modules by gcc and from einnet.h alone by clang; both
# emit the same bytes, whatever the optimisation, the locale, the directory.
. "$(dirname "$0")/lib.sh"

check 'generated sources' make -s build/templates.inc build/onnx/onnx.pb-c.o
sources="gen/einnet.c $(echo gen/cli/*.c gen/import/*.c)"
include='-Igen -Ibuild -isystem build/onnx'

build() {
    name=$1
    shift
    check "build: $*" "$@" -std=c11 $warn_c $include $sources build/onnx/onnx.pb-c.o \
        -o "$work/$name" -lprotobuf-c -lm
}

build gcc0 gcc -O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all
mkdir "$work/release"
cp einnet.h "$work/release"
mkdir "$work/release/gen"
cp -R gen/einnet.c gen/cli gen/import "$work/release/gen"
sources=$(find "$work/release/gen" -name '*.c')
include="-isystem build/onnx -I$work/release/gen"
build clang3 clang -O3 -DEINNET_RELEASE

[ $failed = 0 ] || finish

# A locale with a decimal comma, made here where the system has none.
comma=C
if localedef -c -i de_DE -f UTF-8 "$work/de_DE.UTF-8" > /dev/null 2>&1; then
    comma=de_DE.UTF-8
fi

mkdir "$work/elsewhere"
each=5
[ -z "${LONG:-}" ] || each=1
models=$(ls models/*.ein models/cases/*.ein tests/unseen/*.ein | awk -v n=$each 'NR % n == 0')
for model in $models; do
    name=$(basename "$model" .ein)
    cp "$model" "$work/elsewhere"
    "$work/gcc0" emit "$model" -o - > "$work/a" 2> "$work/a.err"
    code=$?
    (cd "$work/elsewhere" && LOCPATH=$work LC_ALL=$comma MALLOC_PERTURB_=85 \
        "$work/clang3" emit "$name.ein" -o ../b 2> ../log)
    if [ $code != 0 ] || [ ! -s "$work/a" ]; then
        fail "$model is emitted under sanitizers (exit code $code)" "$work/a.err"
    elif ! cmp "$work/a" "$work/b" > "$work/log" 2>&1; then
        fail "$model: the same bytes from clang -O3, einnet.h, another directory, locale $comma" \
            "$work/log"
    else
        pass
    fi
done
finish
