/*
 * A model as it is served: description, weights (mapped, read-only), tokenizer, chat template.
 *
 * Threading: immutable after model_open. Ownership: everything reachable belongs to the struct loaded_model.
 */
#ifndef HEARSAY_MODEL_LOADED_MODEL_H
#define HEARSAY_MODEL_LOADED_MODEL_H

#include "core/base/error.h"
#include "core/model/chat_template.h"
#include "core/model/tokenizer.h"
#include "core/port/model.h"

struct loaded_model {
    const struct model_desc *desc;
    struct tokenizer *tokenizer;
    const struct chat_template *chat; /* NULL when the model has none (a base model): chat requests are then refused */
    char chat_missing[480];           /* why chat is NULL, one line */
};

/*
 * path: a .gguf file or a Hugging Face folder. chat_template: NULL to recognise it, else a family's name. An unknown template
 * text in the model is an error that lists the names (design: a clear start-up error); no template at all is not.
 */
int model_open(const char *path, const char *chat_template, struct loaded_model **out, struct error *err);
/* A GGUF file already in memory, which must stay until model_close; name stands for the path in errors. */
int model_open_memory(const void *data, size_t len, const char *name, const char *chat_template, struct loaded_model **out,
                      struct error *err);
void model_close(struct loaded_model *model);

#endif
