// Package spelling finds what a slip of the keyboard was to be.
package spelling

import (
	"slices"
	"strings"
)

// Nearest is the known word that the fewest letters make of a word, upper case or lower, and at most so many; empty if there
// is none. A word of which nothing would be left is near nothing.
func Nearest(word string, known []string, most int) string {
	best, least := "", min(most+1, len(word))
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := edits(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// edits is how many letters one has to change, insert or delete to get from a to b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
