/*
 * How a backend holds the matrices of a model (weights.h). A value; nothing else.
 */
#ifndef HEARSAY_CPU_WEIGHT_FORM_H
#define HEARSAY_CPU_WEIGHT_FORM_H

enum weight_form {
    WEIGHT_FORM_AUTO,   /* native if a matrix is in the project's own 4-bit format, else 16 bits */
    WEIGHT_FORM_16BIT,
    WEIGHT_FORM_NATIVE, /* integers wherever the tensor's format is made of groups */
};

#endif
