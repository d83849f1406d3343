# Turns each kernel launch `name<<<grid, block, smem, stream>>>(args);` or
# `name<T, 4><<<...>>>(args);`, alone on its line, into plain C++:
# `judge_configure("name", name, grid, block, smem, stream)(args);`. Lines keep their numbers.
# A launch in any other form is an error. In `launch(m, WHEN, kernel, ...`, where a function of that
# name launches what it is given, the kernel is told its name; so it is in `launch_now(k_NAME<T>,`.
# reinterpret_cast becomes one that looks at what a pointer's type is aligned to; `extern __shared__
# __align__(N) unsigned char s[];` the place of the judge's dynamic shared memory; calls of what
# stands in for tensor cores become the judge's. Usage: awk -v file=NAME.cu -f launch.awk NAME.cu
BEGIN {
    launch = "^[ \t]*[A-Za-z_][A-Za-z0-9_:]*(<[^;\"]*>)?<<<[^;]*>>>\\(.*\\);[ \t]*(//.*)?$"
    printf "#line 1 \"%s\"\n", file
}

{
    gsub(/reinterpret_cast</, "judge_cast<")
    if (match($0, /extern __shared__ __align__\([0-9]+\) unsigned char [a-z_]+\[\];/)) {
        name = substr($0, RSTART, RLENGTH - 3)
        sub(/.* /, "", name)
        $0 = substr($0, 1, RSTART - 1) "unsigned char *const " name \
            " = static_cast<unsigned char *>(judge_dynamic_shared());" substr($0, RSTART + RLENGTH)
    }
    gsub(/multiply_add_words<tensor_type>\(/, "judge_multiply_add_words<tensor_type>(__LINE__, ")
    gsub(/fragment_rows\(q, /, "judge_fragment_rows(__LINE__, q, ")
    gsub(/fragment_columns\(q, /, "judge_fragment_columns(__LINE__, q, ")
    code = $0
    sub(/\r$/, "", code)
    if (code ~ launch) {
        open = index(code, "<<<")
        close_at = index(code, ">>>(")
        match(code, /[^ \t]/)
        name = substr(code, RSTART, open - RSTART)
        config = substr(code, open + 3, close_at - open - 3)
        printf "%sjudge_configure(\"%s\", %s, %s)%s\n", substr(code, 1, RSTART - 1), name, name,
            config, substr(code, close_at + 3)
        next
    }
    # The kernel's name may be the last word of its line.
    if (match(code, /[( ]launch\(m, [A-Z]+, [A-Za-z_][A-Za-z0-9_]*,( "|$)/)) {
        head = substr(code, 1, RSTART + RLENGTH - 1)
        sub(/,( ")?$/, "", head)
        name = head
        sub(/.* /, "", name)
        print substr(head, 1, length(head) - length(name)) "judge_named(" name ", \"" name "\")" \
            substr(code, length(head) + 1)
        next
    }
    if (match(code, /[( ]launch_now\(k_[a-z0-9_]+<[a-z ]+>,/)) {
        name = substr(code, RSTART + 12, RLENGTH - 13)
        print substr(code, 1, RSTART + 11) "judge_named(" name ", \"" name "\")" \
            substr(code, RSTART + RLENGTH - 1)
        next
    }
    gsub(/\\"/, "", code)
    gsub(/"[^"]*"/, "", code)
    sub(/\/\/.*/, "", code)
    if (code ~ /[A-Za-z0-9_>][ \t]*<<<[^<]*>>>/) {
        print file ":" NR ": a launch has to be `name<<<grid, block, smem, stream>>>(args);`, " \
            "alone on its line" > "/dev/stderr"
        failed = 1
    }
    print
}

END { exit failed }
