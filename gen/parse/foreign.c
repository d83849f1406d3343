// Hints for unknown names: what other frameworks call the operators, attributes and functions that
// exist here, and names that only look like one of ours, where the hint at the nearest name would
// mislead.

// What an operator means that there is in ONNX alone: the import writes it out.
#define EIN__IMPORTED "*"

// Names as ein__fold_name leaves them, with a space around each, and the one that is meant; "":
// none.
typedef struct ein__foreign {
    const char *names, *meant;
} ein__foreign;

static const ein__foreign ein__foreign_op[] = {
    {" linear dense fullyconnected addmm ", "Gemm"},
    {" bmm mm dot batchmatmul ", "MatMul"},
    {" deconv convtransposed transposedconv conv2dtranspose ", "ConvTranspose"},
    {" depthwiseconv ", "Conv"},
    {" permute swapaxes moveaxis ", "Transpose"},
    {" view unflatten ", "Reshape"},
    {" cat concatenate ", "Concat"},
    {" chunk ", "Split"},
    {" embedding embeddinglookup take indexselect ", "Gather"},
    {" takealongaxis takealongdim ", "GatherElements"},
    {" upsample interpolate ", "Resize"},
    {" dropout contiguous detach clone copy ", "Identity"},
    {" adaptiveavgpool globalavgpool globalavgpooling ", "GlobalAveragePool"},
    {" adaptivemaxpool globalmaxpooling ", "GlobalMaxPool"},
    {" avgpool avgpooling averagepooling ", "AveragePool"},
    {" maxpooling ", "MaxPool"},
    {" mean ", "ReduceMean"},
    {" prod ", "ReduceProd"},
    {" amax ", "ReduceMax"},
    {" amin ", "ReduceMin"},
    {" logsumexp ", "ReduceLogSumExp"},
    {" clamp hardtanh relu6 ", "Clip"},
    {" repeat ", "Tile"},
    {" expanddims ", "Unsqueeze"},
    {" broadcastto ", "Expand"},
    {" zeropad constantpad reflectionpad replicationpad ", "Pad"},
    {" pixelshuffle ", "DepthToSpace"},
    {" pixelunshuffle ", "SpaceToDepth"},
    {" maskedfill ", "Where"},
    {" triu tril ", "Trilu"},
    {" astype ", "Cast"},
    {" expit logistic ", "Sigmoid"},
    {" subtract ", "Sub"},
    {" multiply ", "Mul"},
    {" divide truediv ", "Div"},
    {" power ", "Pow"},
    {" negative ", "Neg"},
    {" absolute ", "Abs"},
    {" maximum ", "Max"},
    {" minimum ", "Min"},
    {" ceiling ", "Ceil"},
    {" sgn ", "Sign"},
    {" eq ", "Equal"},
    {" lt ", "Less"},
    {" le lessequal ", "LessOrEqual"},
    {" gt ", "Greater"},
    {" ge greaterequal ", "GreaterOrEqual"},
    {" logicalnot ", "Not"},
    {" logicaland ", "And"},
    {" logicalor ", "Or"},
    {" logicalxor ", "Xor"},
    {" silu swish ", "y[i] = x[i] * sigmoid(x[i])"},
    {" rsqrt ", "y[i] = rsqrt(x[i])"},
    {" square sqr ", "y[i] = square(x[i])"},
    {" affinegrid arrayfeatureextractor attention binarizer bitshift bitwiseand bitwisenot "
     "bitwiseor bitwisexor castlike centercroppad col2im compress concatfromsequence "
     "constantofshape convinteger cumprod deformconv dequantizelinear det dft "
     "dynamicquantizelinear dynamicquantizelstm dynamicquantizematmul erfc expm1 "
     "featurevectorizer fusedmatmul gathernd globallppool gridsample gru if imputer isinf "
     "linearclassifier linearregressor loop lppool lrn lstm matmulinteger matmulintegertofloat "
     "matmulnbits maxroipool maxunpool meanvariancenormalization melweightmatrix nonzero "
     "normalizer onehot onehotencoder qgemm qlinearadd qlinearaveragepool qlinearconcat "
     "qlinearconv qlinearglobalaveragepool qlinearleakyrelu qlinearmatmul qlinearmul "
     "qlinearreducemean qlinearsigmoid qlinearsoftmax qlinearwhere quantizelinear "
     "reversesequence rmsnormalization rnn roialign rotaryembedding scaler scan scatter "
     "scatterelements scatternd sequenceat sequenceconstruct sequenceempty sequenceerase "
     "sequenceinsert sequencelength shrink splittosequence stft svmregressor swiglu "
     "tensorscatter ",
     EIN__IMPORTED},
    {" addbmm addcdiv addcmul addn all any atan2 cbrt clipbyvalue cot coth cross csc csch erfinv "
     "exp2 flip glu ldexp log10 log1p log2 logit logsigmoid maxout nand ne nor "
     "reduceall reduceany reducestd reducevar rrelu sec "
     "sech shape sinc size softmin sort xnor ",
     ""},
};

static const ein__foreign ein__foreign_function[] = {
    {" gelu ", "0.5 * x[i] * (1 + erf(0.7071067811865476 * x[i]))"},
    {" silu swish ", "x[i] * sigmoid(x[i])"},
    {" tan ", "sin(x[i]) / cos(x[i])"},
    {" ln ", "log(x[i])"},
    {" fmod ", "rem(x[i], y[i])"},
    {" acos acosh asin asinh atan2 atanh celu cosh cot elu erfc exp2 expm1 isinf log10 "
     "log1p log2 mean mod selu sinc sinh ",
     ""},
};

// Of several rows with one name, the first whose attribute the operator has is meant.
static const ein__foreign ein__foreign_attr[] = {
    {" dim ", "axis"},
    {" dim dims axis ", "axes"},
    {" dims axes order ", "perm"},
    {" axes ", "axis"},
    {" padding pad ", "pads"},
    {" stride ", "strides"},
    {" kernel kernelsize ksize ", "kernel_shape"},
    {" dilation ", "dilations"},
    {" groups numgroups ", "group"},
    {" groups group ", "num_groups"},
    {" keepdim ", "keepdims"},
    {" eps ", "epsilon"},
    {" negativeslope slope ", "alpha"},
    {" size outputsize ", "sizes"},
    {" scalefactor ", "scales"},
    {" dtype ", "to"},
    {" outpads outputpads ", "output_padding"},
};

#define EIN__FOREIGN(table) table, sizeof table / sizeof *table

enum { EIN__FOLDED = 40 };

// `name` in small letters and without `_`.
static void ein__fold_name(char folded[EIN__FOLDED], const char *name) {
    size_t n = 0;
    for (; *name && n < EIN__FOLDED - 1; name++)
        if (*name != '_') folded[n++] = ein__small_letter(*name);
    folded[n] = 0;
}

// The same without the number of dimensions that may stand behind it, as in MaxPool2d.
static void ein__fold_op_name(char folded[EIN__FOLDED], const char *name) {
    ein__fold_name(folded, name);
    size_t n = strlen(folded);
    if (n > 4 && folded[n - 1] == 'd' && folded[n - 2] >= '1' && folded[n - 2] <= '3')
        folded[n - 2] = 0;
}

static bool ein__among(const char *names, const char *folded) {
    size_t n = strlen(folded);
    for (const char *s = names; n && !strchr(folded, ' ') && (s = strstr(s, folded)); s++)
        if (s[-1] == ' ' && s[n] == ' ') return true;
    return false;
}

// What a foreign name, folded, means here; "": nothing that there is; NULL: it is not known.
static const char *ein__foreign_meant(const ein__foreign *table, size_t rows, const char *folded) {
    for (size_t i = 0; i < rows; i++)
        if (ein__among(table[i].names, folded)) return table[i].meant;
    return NULL;
}
