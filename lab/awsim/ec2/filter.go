package ec2

import (
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Filter narrows a Describe call: a thing passes when one of the values matches the named property. Values may hold
// the wildcards * (any text) and ? (one character), and a backslash before either takes it literally.
type Filter struct {
	Name   string   `query:"Name"`
	Values []string `query:"Value"`
}

// maxFilterValues is how many values all filters of one call may have together.
const maxFilterValues = 200

// properties gives the values of a thing that a filter can name; a thing without the property has none.
type properties[T any] map[string]func(T) []string

// compileFilters returns the predicate that all filters together make. tags is nil for things that have no tags.
func compileFilters[T any](filters []Filter, known properties[T], tags func(T) map[string]string) (func(T) bool, error) {
	tests := make([]func(T) bool, 0, len(filters))
	values := 0
	for _, f := range filters {
		if values += len(f.Values); values > maxFilterValues {
			return nil, protocol.Errorf(
				"FilterLimitExceeded",
				"The maximum number of filter values specified on a single call is %d",
				maxFilterValues,
			)
		}
		test, err := compileFilter(f, known, tags)
		if err != nil {
			return nil, err
		}
		tests = append(tests, test)
	}
	return func(t T) bool {
		for _, test := range tests {
			if !test(t) {
				return false
			}
		}
		return true
	}, nil
}

func compileFilter[T any](f Filter, known properties[T], tags func(T) map[string]string) (func(T) bool, error) {
	if f.Name == "" {
		return nil, missing("Filter.Name")
	}
	get, ok := known[f.Name]
	key, tag := strings.CutPrefix(f.Name, "tag:")
	switch {
	case ok && len(f.Values) == 0, tags != nil && tag && len(f.Values) == 0:
		return nil, invalidValue("The filter '%s' must have at least one value", f.Name)
	case ok:
		matches := matcher(f.Values)
		return func(t T) bool { return slices.ContainsFunc(get(t), matches) }, nil
	case tags != nil && tag:
		matches := matcher(f.Values)
		return func(t T) bool { value, has := tags(t)[key]; return has && matches(value) }, nil
	case tags != nil && f.Name == "tag-key":
		matches := matcher(f.Values)
		return func(t T) bool {
			for key := range tags(t) {
				if matches(key) {
					return true
				}
			}
			return false
		}, nil
	case tags != nil && f.Name == "tag-value":
		matches := matcher(f.Values)
		return func(t T) bool {
			for _, value := range tags(t) {
				if matches(value) {
					return true
				}
			}
			return false
		}, nil
	}
	return nil, invalidValue("The filter '%s' is invalid", f.Name)
}

// matcher returns whether a text matches one of the patterns.
func matcher(patterns []string) func(string) bool {
	literal := map[string]bool{}
	var wild []string
	for _, p := range patterns {
		if strings.ContainsAny(p, `*?\`) {
			wild = append(wild, p)
		} else {
			literal[p] = true
		}
	}
	return func(text string) bool {
		return literal[text] || slices.ContainsFunc(wild, func(p string) bool { return glob(p, text) })
	}
}

// glob matches text against a pattern with *, ? and backslash; a backslash at the end stands for itself. It takes time
// in the product of their lengths at worst.
func glob(pattern, text string) bool {
	star, resume := -1, 0 // where the last * stands, and how much of text it has to swallow
	p, t := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, t
			p++
			continue
		case p < len(pattern) && pattern[p] == '?':
			p, t = p+1, t+1
			continue
		case p+1 < len(pattern) && pattern[p] == '\\' && pattern[p+1] == text[t]:
			p, t = p+2, t+1
			continue
		case p < len(pattern) && (pattern[p] != '\\' || p+1 == len(pattern)) && pattern[p] == text[t]:
			p, t = p+1, t+1
			continue
		case star < 0:
			return false
		}
		resume++
		p, t = star+1, resume
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// one is a property with a single value; empty means that the thing does not have it.
func one[T any](get func(T) string) func(T) []string {
	return func(t T) []string {
		if v := get(t); v != "" {
			return []string{v}
		}
		return nil
	}
}

// flag is a property that is true or false.
func flag[T any](get func(T) bool) func(T) []string {
	return func(t T) []string {
		if get(t) {
			return []string{"true"}
		}
		return []string{"false"}
	}
}
