//@key settings  room for settings of an engine
// ---- engines of cuDNN's graph API
// Of those that a program may take, the first so many are measured, and the fastest are told of.
enum { ENGINES = 24, ENGINES_KEPT = 4 };
#if CUDNN_VERSION >= 8300

// The number of an engine, and how an offer sets it; types of settings ascend.
static int read_choice(probe *h, engine_call *c, const conv_size *s, cudnnBackendDescriptor_t offer,
                       cudnnBackendDescriptor_t engine, engine_choice *choice) {
    cudnnBackendDescriptor_t setting[$settings];
    int64_t number = -1, n = 0, settings = 0, value = 0;
    CUDNN_CALL(h, s->name,
               cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                        &n, &number));
    for (int i = 0; i < $settings; i++)
        CALL(engine_new(h, c, s->name, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &setting[i]));
    CUDNN_CALL(
        h, s->name,
        cudnnBackendGetAttribute(offer, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, $settings, &settings, setting));
    if (settings > $settings) return fail(h, BAD_CALL, s->name, "an engine has too many settings");
    choice->engine = (int)number;
    choice->settings = (int)settings;
    for (int i = 0; i < settings; i++) {
        cudnnBackendKnobType_t type;
        CUDNN_CALL(h, s->name,
                   cudnnBackendGetAttribute(setting[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                            CUDNN_TYPE_KNOB_TYPE, 1, &n, &type));
        CUDNN_CALL(h, s->name,
                   cudnnBackendGetAttribute(setting[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                            CUDNN_TYPE_INT64, 1, &n, &value));
        int at = i;
        for (; at > 0 && choice->setting[at - 1][0] > (int)type; at--)
            memcpy(choice->setting[at], choice->setting[at - 1], sizeof choice->setting[at]);
        choice->setting[at][0] = (int)type;
        choice->setting[at][1] = (int)value;
    }
    return 0;
}

// Adds what the library offers in a mode.
static int list_offers(probe *h, int i, cudnnBackendHeurMode_t mode, engine_choice *list, int *n) {
    engine_call *c = &h->conv[i].graph;
    const conv_size *s = &conv_sizes[i];
    cudnnBackendDescriptor_t offer[ENGINE_OFFERS], engine;
    int64_t offers = 0;
    CALL(engine_offers(h, c, s, mode, offer, &offers));
    for (int64_t k = 0; k < offers && *n < ENGINES; k++) {
        int before = c->n, known = 0;
        memset(&list[*n], 0, sizeof *list);
        int r = engine_of(h, c, s, offer[k], &engine);
        if (!r) r = read_choice(h, c, s, offer[k], engine, &list[*n]);
        engine_drop(c, before);
        for (int j = 0; j < *n && !r; j++) known |= !memcmp(&list[j], &list[*n], sizeof *list);
        if (!r && !known) ++*n;
    }
    return 0;
}

// What may be tried for convolution `i`; its graph is described then. None: the library cannot.
static int list_engines(probe *h, int i, engine_choice *list) {
    const cudnnBackendHeurMode_t mode[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    engine_call *c = &h->conv[i].graph;
    int n = 0, r = engine_describe(h, c, &conv_sizes[i]), graph = c->n;
    for (int k = 0; k < 2 && !r; k++) {
        (void)list_offers(h, i, mode[k], list, &n);
        engine_drop(c, graph);
    }
    if (r) engine_drop(c, 0);
    h->error[0] = 0;
    (void)cudaGetLastError();
    return n;
}

static void name_engine(const engine_choice *choice, char *to, size_t room) {
    size_t used = (size_t)snprintf(to, room, "engine:%d", choice->engine);
    for (int i = 0; i < choice->settings && used < room; i++)
        used += (size_t)snprintf(to + used, room - used, ",%d=%d", choice->setting[i][0],
                                 choice->setting[i][1]);
}
#endif
