// Rows for engines that cuDNN offers an emitted probe (PROBE) for a device, with invented times:
// the first are the fastest. Every one of them has to have a plan, if not too much workspace.
#include "deviceless.h"
#define main probe_main
#include PROBE
#undef main

int main(int argc, char **argv) {
    static probe h;
    int bad = argc != 2 || here_device(argv[1]);
    for (int i = 0; i < CONVS && !bad; i++) {
        engine_choice list[ENGINES];
        conv_call *c = &h.conv[i];
        int n = list_engines(&h, i, list), graph = c->graph.n, planned = 0, large = 0;
        for (int k = 0; k < n; k++) {
            char name[400];
            name_engine(&list[k], name, sizeof name);
            bool fits = !engine_choose(&h, c, &conv_sizes[i], &list[k]);
            planned += fits;
            large += !fits && strstr(h.error, "too much workspace");
            if (!fits) printf("# %s %s: %s\n", conv_sizes[i].name, name, h.error);
            else
                printf("%s\t%s algo=%s\t%d\t0\tcudnn %zu\n", argv[1], conv_sizes[i].name, name,
                       1000 + k, cudnnGetVersion());
            c->graph.plan = NULL;
            h.error[0] = 0;
            engine_drop(&c->graph, graph);
        }
        conv_close(c);
        fprintf(stderr, "%d engines, %d plans, %d too large: %s\n", n, planned, large,
                conv_sizes[i].name);
        bad |= planned + large < n;
    }
    if (descriptors) fprintf(stderr, "%d descriptors are left\n", descriptors);
    return bad || descriptors;
}
