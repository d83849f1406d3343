#!/bin/sh
# The program builds without warnings from its modules by gcc and from einnet.h alone by clang; both
# emit the same bytes, whatever the optimisation, the sanitizers, the locale, the directory.
. "$(dirname "$0")/lib.sh"

check 'the program builds' make -s all
sources="gen/einnet.c $(echo gen/cli/*.c gen/import/*.c)"
include='-Igen -Ibuild -isystem build/onnx'
check 'no warnings of the modules, gcc' gcc -fsyntax-only -std=c11 $warn_c $include $sources

build() {
    name=$1
    shift
    check "build: $*" "$@" -std=c11 $warn_c $include $sources build/onnx/onnx.pb-c.o \
        -o "$work/$name" -lprotobuf-c -lm
}

# In a long run the modules under gcc's sanitizers, too, and einnet.h as far optimised as it can be.
sanitizers='-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all'
first=build/einnet
others=sanitized
[ -z "${LONG:-}" ] || {
    build gcc0 gcc $sanitizers
    first=$work/gcc0
    others='sanitized clang3'
}
mkdir "$work/release"
cp einnet.h "$work/release"
mkdir "$work/release/gen"
cp -R gen/einnet.c gen/cli gen/import "$work/release/gen"
sources=$(find "$work/release/gen" -name '*.c')
include="-isystem build/onnx -I$work/release/gen"
build sanitized clang $sanitizers -DEINNET_RELEASE
[ -z "${LONG:-}" ] || build clang3 clang -O3 -DEINNET_RELEASE

[ $failed = 0 ] || finish

# A locale with a decimal comma, made here where the system has none.
comma=C
if localedef -c -i de_DE -f UTF-8 "$work/de_DE.UTF-8" > /dev/null 2>&1; then
    comma=de_DE.UTF-8
fi

mkdir "$work/elsewhere"
each=9
[ -z "${LONG:-}" ] || each=1
models=$(ls models/*.ein models/cases/*.ein tests/unseen/*.ein | awk -v n=$each 'NR % n == 0')
for model in $models; do
    name=$(basename "$model" .ein)
    cp "$model" "$work/elsewhere"
    "$first" emit "$model" -o - > "$work/a" 2> "$work/a.err"
    code=$?
    if [ $code != 0 ] || [ ! -s "$work/a" ]; then
        fail "$model is emitted by $first (exit code $code)" "$work/a.err"
        continue
    fi
    for other in $others; do
        (cd "$work/elsewhere" && LOCPATH=$work LC_ALL=$comma MALLOC_PERTURB_=85 \
            "$work/$other" emit "$name.ein" -o ../b 2> ../log)
        code=$?
        if [ $code != 0 ]; then
            fail "$model is emitted by clang's $other (exit code $code)" "$work/log"
        elif ! cmp "$work/a" "$work/b" > "$work/log" 2>&1; then
            fail "$model: the same bytes from $other, einnet.h, another directory, locale $comma" \
                "$work/log"
        else
            pass
        fi
    done
done
finish
