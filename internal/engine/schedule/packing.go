package schedule

// packingLP is the linear program "maximise value . y, where each row . y <= limit, y >= 0" with rows and values that
// are never negative and limits that are positive. Its rows come one by one.
type packingLP struct {
	value []float64
	rows  [][]float64
	limit []float64
}

func (lp *packingLP) add(row []float64, limit float64) {
	lp.rows, lp.limit = append(lp.rows, row), append(lp.limit, limit)
}

const (
	// tiny is what counts as nothing, in programs whose numbers are scaled to about one.
	tiny = 1e-9
	// maxPivots bounds the work on one program. Whatever the pivot, the point at hand satisfies all rows.
	maxPivots = 400
)

// solve returns a best point, or, when that takes too many pivots, a good one (primal simplex; the start is zero).
func (lp *packingLP) solve() []float64 {
	n, m := len(lp.value), len(lp.rows)
	width := n + m + 1
	tableau := make([][]float64, m+1)
	basis := make([]int, m)
	for i := range tableau {
		tableau[i] = make([]float64, width)
	}
	for i, row := range lp.rows {
		copy(tableau[i], row)
		tableau[i][n+i], tableau[i][width-1], basis[i] = 1, lp.limit[i], n+i
	}
	objective := tableau[m]
	copy(objective, lp.value)
	for pivots := range maxPivots {
		enter := entering(objective[:width-1], pivots > maxPivots/2)
		if enter < 0 {
			break
		}
		leave := leaving(tableau[:m], enter, basis)
		if leave < 0 {
			break // nothing limits this value: no row of it is known yet
		}
		pivot(tableau, leave, enter)
		basis[leave] = enter
	}
	y := make([]float64, n)
	for i, v := range basis {
		if v < n {
			y[v] = max(0, tableau[i][width-1])
		}
	}
	return y
}

// entering is the variable that improves the value most, or, where that might go in circles, the first that does.
func entering(objective []float64, first bool) int {
	enter, most := -1, tiny
	for j, v := range objective {
		if v > most {
			enter, most = j, v
			if first {
				break
			}
		}
	}
	return enter
}

func leaving(rows [][]float64, enter int, basis []int) int {
	leave, least := -1, 0.0
	for i, row := range rows {
		if row[enter] <= tiny {
			continue
		}
		ratio := row[len(row)-1] / row[enter]
		if leave < 0 || ratio < least || (ratio == least && basis[i] < basis[leave]) {
			leave, least = i, ratio
		}
	}
	return leave
}

func pivot(tableau [][]float64, leave, enter int) {
	row := tableau[leave]
	by := 1 / row[enter]
	for j := range row {
		row[j] *= by
	}
	for i, other := range tableau {
		factor := other[enter]
		if i == leave || factor == 0 {
			continue
		}
		for j, x := range row {
			other[j] -= factor * x
		}
	}
}
