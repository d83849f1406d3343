// Opens the convolutions of an emitted program (PROGRAM, its prefix `plan`), as its create
// does, for a device: with the engines of a table, and with the version of the library being
// another one.
#include "deviceless.h"
#include PROGRAM

int main(int argc, char **argv) {
    static plan m;
    int bad = argc != 2 || here_device(argv[1]);
    for (size_t i = 0; i < sizeof conv_sizes / sizeof *conv_sizes && !bad; i++) {
        conv_call *c = &m.conv[i];
        conv_size s = conv_sizes[i];
        int r = engine_describe(&m, &c->graph, &s);
        if (!r) r = engine_choose(&m, c, &s, &s.choice);
        printf("%s engine %d: %s, workspace %zu\n", s.name, s.choice.engine, r ? m.error : "pinned",
               c->workspace);
        bad |= r != 0;
        m.error[0] = 0;
        engine_drop(&c->graph, 0);
        memset(c, 0, sizeof *c);
        s.version++;
        r = engine_open(&m, c, &s);
        printf("%s, another version: %s, workspace %zu\n", s.name, r ? "none" : "chosen",
               c->workspace);
        bad |= r != 0 || !c->graph.plan;
        engine_drop(&c->graph, 0);
    }
    if (descriptors) printf("%d descriptors are left\n", descriptors);
    return bad || descriptors;
}
