// Where a lane's two neighbouring elements of an 8x8 matrix lie, as in MLX's own attention: in this
// row, in this column and the next.

namespace macspec {

inline int matrix_row(uint lane) { return int(lane / 16 * 4 + lane / 2 % 4); }

inline int matrix_column(uint lane) { return int(lane / 8 % 2 * 4 + lane % 2 * 2); }

}  // namespace macspec
