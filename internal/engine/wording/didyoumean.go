package wording

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Similar is the known word that a word was probably meant to be; empty if none is similar.
func Similar(word string, known []string) string {
	near, _ := nearestWord(word, known)
	return near
}

// nearWord is a known word with its edit distance from the given one.
type nearWord struct {
	word string
	off  int
}

// nearestWord is the known word with the least edit distance. A label key may also lack its domain, or have the wrong
// one.
func nearestWord(word string, known []string) (string, bool) {
	var near []nearWord
	name := word[strings.Index(word, "/")+1:]
	for _, k := range known {
		if k == word {
			continue
		}
		_, own, qualified := strings.Cut(k, "/")
		switch off := distance(strings.ToLower(word), strings.ToLower(k)); {
		case off <= max(1, len(word)/4) && off < len(word):
			near = append(near, nearWord{k, off})
		case qualified && name != "" && (own == name || strings.HasSuffix(own, "-"+name)):
			near = append(near, nearWord{k, len(word) + len(own) - len(name)})
		}
	}
	slices.SortFunc(near, func(a, b nearWord) int { return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.word, b.word)) })
	// If many words are equally near, the word is probably another of the same sort that does not exist, not a typo.
	if len(near) == 0 || len(near) > 2 && near[2].off == near[0].off {
		return "", false
	}
	return near[0].word, true
}

// distance is the Damerau-Levenshtein distance (optimal string alignment): letters to insert, delete, replace or swap
// with their neighbor. Cost: the product of the lengths.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// SimilarToAny is Similar for the first of the words that is unknown but similar to a known one.
func SimilarToAny(words []string, known map[string]bool) string {
	for _, w := range words {
		if near := Similar(w, slices.Sorted(maps.Keys(known))); !known[w] && near != "" {
			return near
		}
	}
	return ""
}
