// Package spelling finds the word that a misspelled word was meant to be, and the fields that there are where one is not known.
package spelling

import (
	"slices"
	"strings"
)

// Nearest returns the known word with the smallest edit distance to a word, ignoring case, if it is at most maxEdits;
// empty if there is none. A distance of the word's whole length does not count.
func Nearest(word string, known []string, maxEdits int) string {
	best, least := "", min(maxEdits+1, len(word))
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := edits(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// edits returns the Levenshtein distance of a and b: Wagner and Fischer's algorithm with one row, in O(len(a)·len(b))
// time. Before step i the row holds the distances of a[:i] to all prefixes of b.
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
