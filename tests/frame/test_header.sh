#!/bin/sh
# einnet.h as a user meets it: fresh, its declarations alone in C and C++, one implementing unit
# beside others, nothing exported and no macro defined but its own; installed.
. "$(dirname "$0")/lib.sh"

check 'tools build' make -s build/amalgamate build/templates.inc
build/amalgamate flatten -Ibuild gen/all.h > "$work/einnet.h"
check 'einnet.h is fresh (run: make header)' cmp "$work/einnet.h" einnet.h

# refuse TEXT MESSAGE: a template of these lines is refused with this message.
refuse() {
    printf "$1" > "$work/odd.cu"
    if build/amalgamate embed "$work/odd.cu" > /dev/null 2> "$work/said"; then
        fail "a template is refused: $2"
    else
        check "a template is refused in words: $2" grep -q -F -e "odd.cu:$2" "$work/said"
    fi
}
refuse '//@key a  one\n$a $b;\n' "2: no line '//@key b' declares this placeholder"
refuse '//@key a  one\n//@key b  two\n$a\n' "2: nothing uses placeholder 'b'"
refuse '//@if c\n//@end\n' "1: no line '//@key c' declares this placeholder"
refuse '//@key a  one\n//@if a\n$a\n' '3: an //@if has no //@end'
refuse '//@key a  one\n$a\n//@else\n' '3: there is no //@if before this line'
refuse '//@key a  one\n$a\n//@end\n' '3: there is no //@if before this line'
printf '//@key a  one\n  //@if a\n$a\n  //@else\n  //@end\n' > "$work/even.cu"
check 'a template is taken' build/amalgamate embed "$work/even.cu"

echo '#include "einnet.h"
int version(void);
int version(void) { return EIN_CODEGEN + (ein_gpu_name(0) != 0); }' > "$work/use.c"
cp "$work/use.c" "$work/use.cpp"
echo '#define EINNET_IMPLEMENTATION
#include "einnet.h"' > "$work/body.c"
echo '#define EINNET_IMPLEMENTATION
#define EIN_STATIC
#include "einnet.h"' > "$work/static.c"
echo '#define STB_DS_IMPLEMENTATION
#include <stb/stb_ds.h>' > "$work/stb.c"
echo '#include "einnet.h"
int version(void);
int main(void) {
    ein_ctx *ctx = ein_open(0);
    int status = ein_get_status(ctx);
    ein_close(ctx);
    return status + version() - EIN_CODEGEN - 1;
}' > "$work/main.c"

for cc in gcc clang; do
    check "declarations, $cc" $cc -std=c11 $warn_c -I. -c "$work/use.c" -o "$work/use_$cc.o"
done
for cxx in g++ clang++; do
    check "declarations, $cxx" $cxx -std=c++11 $warn -I. -c "$work/use.cpp" -o "$work/use_$cxx.o"
done
check 'implementation, gcc' gcc -std=c11 -O0 $warn_c -I. -c "$work/body.c" -o "$work/body.o"
check 'implementation with EIN_STATIC' clang -std=c11 -fsyntax-only -w -I. "$work/static.c"
check 'implementation without bodies of stb_ds, clang' clang -std=c11 -O0 $warn_c -I. \
    -DEIN_NO_STB_DS_IMPLEMENTATION -c "$work/body.c" -o "$work/body2.o"
gcc -c -w "$work/stb.c" -o "$work/stb.o"
gcc -std=c11 -I. -c "$work/main.c" -o "$work/main.o"
check 'two units link' gcc "$work/main.o" "$work/use_gcc.o" "$work/body.o" -o "$work/two" -lm
check 'two units run' "$work/two"
check 'C and C++ units link' g++ "$work/main.o" "$work/use_gcc.o" "$work/body2.o" "$work/stb.o" \
    -o "$work/three" -lm
if g++ -I. -c -x c++ "$work/body.c" -o "$work/no.o" 2> "$work/said"; then
    fail 'the implementation as C++ is refused'
else
    check 'the implementation as C++ is refused in words' grep -q 'is C11' "$work/said"
fi
for one in 'EIN_REALLOC(p, n)=realloc(p, n)' 'EIN_FREE(p)=free(p)'; do
    if gcc -std=c11 -I. "-D$one" -fsyntax-only "$work/body.c" 2> "$work/said"; then
        fail "$one alone is refused"
    else
        check "$one alone is refused in words" grep -q 'go together' "$work/said"
    fi
done

nm -g --defined-only "$work/body.o" | awk '{ print $3 }' | grep -v -E '^(ein|stbds)_' > "$found"
empty 'exported symbols'
nm -g --defined-only "$work/body2.o" | awk '{ print $3 }' | grep -v -E '^ein_' > "$found"
empty 'exported symbols without stb_ds'
grep -E '^ *# *define' einnet.h | sed 's/^ *# *define *//; s/[^A-Za-z0-9_].*//' |
    grep -v -x -E 'EIN[A-Z0-9_a-z]*|STB_DS_IMPLEMENTATION' > "$found"
empty 'macros named EIN...'

check 'make install' make -s install DESTDIR="$work/root" PREFIX=/usr
check 'the installed program' "$work/root/usr/bin/einnet" --version
check 'the installed header' cmp einnet.h "$work/root/usr/include/einnet.h"
finish
