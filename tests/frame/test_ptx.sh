#!/bin/sh
# The judge's interpreter of PTX (tests/judge/ptx.h): instructions agree with plain C, right kernels
# raise no alarm, planted faults are noticed, in sources and in the PTX itself.
. "$(dirname "$0")/lib.sh"

# prepare NAME FILE [ARCHITECTURE]: a program, and the PTX of its kernels.
prepare() {
    check "$1: build" tests/judge/judgecc --quick -o "$work/$1" "$2"
    check "$1: PTX" nvcc -std=c++14 -ptx -arch=sm_"${3:-90}" -o "$work/$1.ptx" "$2"
}

# expect WANTED NAME ARGUMENTS...: the status of a program whose kernels are interpreted.
planted=
ptx=
expect() {
    wanted=$1
    program=$2
    shift 2
    within 60 env JUDGE_PTX="${ptx:-$work/$program.ptx}" "$work/$program" "$@" > "$work/log" 2>&1
    status=$?
    if [ $status = "$wanted" ]; then
        pass
    else
        fail "$program $* ${JUDGE_ORDER:-}$planted: $status, not $wanted" "$work/log"
    fi
}

prepare values tests/judge/values.cu
expect 0 values

prepare faults tests/judge/faults.cu
prepare early tests/judge/early.cu
prepare copies tests/judge/copies.cu
prepare clusters tests/judge/clusters.cu
export JUDGE_LEAKCHECK=0
for order in '' rev; do
    export JUDGE_ORDER=$order
    for name in shared_reverse dynamic_reverse static_and_dynamic atomics warp_exchange block_sum \
        half_neighbours bytes_neighbours votes blocks last_block allowed_shared streams_wait \
        graph_fork; do
        expect 0 faults $name
    done
    for name in oob_global oob_read oob_dynamic oob_local divergent_barrier early_exit bad_mask \
        mask_without_self misaligned; do
        expect 86 faults $name
    done
    for how in '' graph; do
        for name in right library waits_inside; do
            expect 0 early $name $how
        done
        for name in no_wait some_wait early_trigger library_no_wait; do
            expect 86 early $name $how
        done
    done
    # What reads or writes before its wait shows where streams are late.
    for name in reads_before writes_before; do
        expect 4 early $name graph
    done
    for name in right sizes; do
        expect 0 copies $name
    done
    for name in misaligned to_global never_arrives; do
        expect 86 copies $name
    done
    expect 0 clusters right
    expect 4 clusters reads_early
    for name in ends_early beyond arrives_twice stays_away part_of_one shows_nothing \
        reads_late; do
        expect 86 clusters $name
    done
done
# A kernel's static shared memory is known to the interpreter alone.
expect 86 faults too_much_beside_static
expect 4 copies too_soon
unset JUDGE_ORDER
expect 4 faults last_forgets
expect 4 faults unset_dynamic
expect 4 copies no_wait
expect 4 copies wait_for_less

# plant WANTED WHAT SED PROGRAM ARGUMENTS...: with a change of its PTX.
plant() {
    status=$1
    planted=$2
    sed -E "$3" "$work/$4.ptx" > "$work/planted.ptx"
    shift 3
    if cmp -s "$work/$1.ptx" "$work/planted.ptx"; then
        fail "$planted: nothing is planted"
    else
        ptx=$work/planted.ptx
        expect "$status" "$@"
    fi
    planted=
    ptx=
}
r='(%r[0-9]+)'
prepare fragments tests/kernels/fragments.cu 80
expect 0 fragments
plant 1 'registers of A' "s/(m16n8k16.*\}, \{)$r, $r, $r, $r\}/\1\2, \4, \3, \5}/" fragments
plant 1 'registers of B' "s/(m16n8k16.*\}, \{)$r, $r\}, /\1\3, \2}, /" fragments
plant 1 'registers of A in TF32' "s/(m16n8k8.*\}, \{)$r, $r, $r, $r\}/\1\2, \4, \3, \5}/" fragments
plant 1 'registers of B in TF32' "s/(m16n8k8.*\}, \{)$r, $r\}, /\1\3, \2}, /" fragments
plant 1 'rows for columns' 's/x4[.]trans/x4/' fragments
plant 1 'the order of matrices' "s/(ldmatrix.*\{)$r, $r, /\1\3, \2, /" fragments
plant 4 'a barrier that is not there' '/bar[.]sync/d' faults shared_reverse
plant 86 'a constant that is written' 's/ld[.]global[.]f32/ld.global.nc.f32/' faults streams_wait
plant 86 'a cluster that is not waited for' '/barrier[.]cluster[.]wait/d' clusters right
plant 86 'blocks beside each other that are none' '/[.](req|explicit).*cluster/d' clusters right
plant 1 'no rounding' 's/cvt[.]rna[.]tf32[.]f32/mov.b32/' fragments
plant 86 'rows at an odd place' "s/(ldmatrix.*\[)$r\]/\1\2+4]/" fragments
plant 86 'rows outside' "s/(ldmatrix.*\[)$r\]/\1\2+65536]/" fragments
alone='{.reg .pred q; .reg .u32 l; mov.u32 l, %laneid; setp.lt.u32 q, l, 16; @q bra away;}'
plant 86 'some lanes alone' "s/^mma[.]sync|^.mma[.]sync/$alone &/; s/^.ret;/away: &/" fragments
plant 86 'an unknown instruction' 's/cvt[.]rna[.]tf32/cvt.rnx.tf32/' fragments
plant 86 'an unknown name' "s/(ldmatrix.*\[)$r\]/\1%q1]/" fragments
plant 86 'an entry less' 's/[.]entry _Z8multiply/.entry _Z8divided/' fragments
plant 86 'a parameter more' 's/(_Z8multiply.*_param_1)/\1,\n.param .u32 more/' fragments
# What runs by itself has to be ordered with what others do.
prepare groups tests/judge/groups.cu 90a
for JUDGE_ORDER in '' rev; do
    export JUDGE_ORDER
    expect 0 groups
done
unset JUDGE_ORDER
mma='^.wgmma.mma_async[^{]*[{](%f[0-9]+),.*'
plant 86 'no wgmma.fence' '/wgmma[.]fence/d' groups
plant 86 'no fence.proxy.async' '/fence[.]proxy/d' groups
plant 86 'products not waited for' 's/(wgmma[.]wait_group.*) 0/\1 1/' groups
plant 86 'products not committed' '/wgmma[.]commit/d' groups
plant 86 'copies not waited for' 's/(cp[.]async[.]wait_group) 1/\1 2/' groups
plant 86 'no barrier behind products' '/barrier[.]sync[.]aligned/d' groups
plant 86 'a sum written behind wgmma.fence' "s/$mma/mov.f32 \1, \1;\n&/" groups
plant 86 'a sum read too soon' "s/$mma/&\nmov.f32 %f1, \1;/" groups
plant 86 'a step within a pattern' 's/align 1024/align 128/' groups
alone='mov.u32 l, %tid.x; setp.lt.u32 q, l, 96;'
plant 86 'three warps of a group' "s/^.wgmma[.]mma/@q &/; s/^.wgmma[.]fence/$alone\n&/
    s/^.[.]reg [.]pred/.reg .pred q; .reg .u32 l;\n&/" groups
finish
