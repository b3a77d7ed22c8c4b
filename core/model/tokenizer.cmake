# Tokenizer, pre-tokenizers and chat templates, as part of hearsay_model.
set(TOKENIZER_SOURCES
    bpe.c
    chat_chatml.c
    chat_header.c
    chat_inst.c
    chat_template.c
    chat_text.c
    pretokenize.c
    sentencepiece.c
    special_tokens.c
    tokenizer.c
    tokenizer_build.c
    tokenizer_gguf.c
    tokenizer_json.c
    tokenizer_json_parts.c
    tokenizer_vocab.c
    unicode.c)
