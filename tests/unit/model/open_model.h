/* Opens a model that a test needs, or fails the test. */
#ifndef HEARSAY_TESTS_OPEN_MODEL_H
#define HEARSAY_TESTS_OPEN_MODEL_H

#include "core/model/model_weights.h"
#include "tests/unit/model/check.h"

static inline struct model_weights *open_model(const char *path)
{
    struct model_weights *w;
    struct error err = {0};
    if (model_weights_open(path, &w, &err) < 0)
        fail_msg("%s", err.text);
    return w;
}

#endif
