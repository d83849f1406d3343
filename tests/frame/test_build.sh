#!/bin/sh
# The program builds without warnings under gcc and clang, and from einnet.h alone; every form of it
# emits the same bytes, whatever the optimisation, the locale, the directory.
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
build clang3 clang -O3
mkdir "$work/release"
cp einnet.h "$work/release"
mkdir "$work/release/gen"
cp -R gen/einnet.c gen/cli gen/import "$work/release/gen"
check 'build from einnet.h, gcc -O1' gcc -O1 -DEINNET_RELEASE -std=c11 $warn_c -isystem build/onnx \
    -I"$work/release/gen" $(find "$work/release/gen" -name '*.c') build/onnx/onnx.pb-c.o \
    -o "$work/gcc3" -lprotobuf-c -lm

[ $failed = 0 ] || finish

# A locale with a decimal comma, made here where the system has none.
comma=C
if localedef -c -i de_DE -f UTF-8 "$work/de_DE.UTF-8" > /dev/null 2>&1; then
    comma=de_DE.UTF-8
fi

mkdir "$work/elsewhere"
for model in models/*.ein models/cases/*.ein tests/unseen/*.ein; do
    name=$(basename "$model" .ein)
    cp "$model" "$work/elsewhere"
    "$work/gcc0" emit "$model" -o - > "$work/a" 2> "$work/a.err"
    code=$?
    LOCPATH=$work LC_ALL=$comma "$work/clang3" emit "$top/$model" -o - > "$work/b" 2> "$work/log"
    (cd "$work/elsewhere" && MALLOC_PERTURB_=85 "$work/gcc3" emit "$name.ein" -o ../c 2> ../log)
    if [ $code != 0 ] || [ ! -s "$work/a" ]; then
        fail "$model is emitted under sanitizers (exit code $code)" "$work/a.err"
    elif ! cmp "$work/a" "$work/b" > "$work/log" 2>&1; then
        fail "$model: the same bytes from clang -O3 in locale $comma" "$work/log"
    elif ! cmp "$work/a" "$work/c" > "$work/log" 2>&1; then
        fail "$model: the same bytes from einnet.h in another directory" "$work/log"
    else
        pass
    fi
done
finish
