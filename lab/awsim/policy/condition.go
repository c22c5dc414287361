package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// condition is one test of one key.
type condition struct {
	key    string // in lower case
	values []string
	// match compares a value of the request with one of the policy; nil for Null.
	match    func(pattern, value string) bool
	negated  bool // holds where nothing matches
	ifExists bool // holds where the key is absent
	set      set
}

// set is how a key with several values is tested.
type set int

const (
	single set = iota
	forAll
	forAny
)

// operators by name. Those with Not are the negation of what is named without it.
var operators = map[string]func(pattern, value string) bool{
	"StringEquals":           func(p, v string) bool { return p == v },
	"StringEqualsIgnoreCase": strings.EqualFold,
	"StringLike":             Like,
	"Bool":                   strings.EqualFold,
	"ArnEquals":              likeARN,
	"ArnLike":                likeARN,
	"NumericEquals":          numeric(func(p, v float64) bool { return v == p }),
	"NumericLessThan":        numeric(func(p, v float64) bool { return v < p }),
	"NumericLessThanEquals":  numeric(func(p, v float64) bool { return v <= p }),
	"NumericGreaterThan":     numeric(func(p, v float64) bool { return v > p }),
	"NumericGreaterThanEquals": numeric(func(p, v float64) bool {
		return v >= p
	}),
}

func newCondition(operator, key string, values []string) (condition, error) {
	c := condition{key: strings.ToLower(key), values: values}
	name := operator
	if rest, ok := strings.CutPrefix(name, "ForAllValues:"); ok {
		name, c.set = rest, forAll
	} else if rest, ok := strings.CutPrefix(name, "ForAnyValue:"); ok {
		name, c.set = rest, forAny
	}
	for _, v := range values {
		if strings.Contains(v, "${") {
			return c, fmt.Errorf("condition value %q: the simulator knows no policy variables", v)
		}
	}
	if len(values) == 0 {
		return c, fmt.Errorf("condition %s of %s has no values", operator, key)
	}
	if name == "Null" {
		if c.set != single || slices.ContainsFunc(values, func(v string) bool { return v != "true" && v != "false" }) {
			return c, fmt.Errorf("condition Null of %s: true or false is expected", key)
		}
		return c, nil
	}
	name, c.ifExists = strings.CutSuffix(name, "IfExists")
	for _, family := range []string{"String", "Arn", "Numeric"} {
		if rest, ok := strings.CutPrefix(name, family+"Not"); ok {
			name, c.negated = family+rest, true
		}
	}
	match, known := operators[name]
	if !known {
		return c, fmt.Errorf("invalid condition type: %s", operator)
	}
	c.match = match
	return c, nil
}

// holds reports whether a request with these keys passes the test.
func (c condition) holds(keys Keys) bool {
	values, present := keys[c.key]
	if c.match == nil { // Null
		return slices.Contains(c.values, strconv.FormatBool(!present))
	}
	if !present {
		switch {
		case c.ifExists, c.set == forAll:
			return true
		case c.set == forAny:
			return false
		}
		return c.negated
	}
	passes := func(value string) bool {
		return slices.ContainsFunc(c.values, func(pattern string) bool { return c.match(pattern, value) }) != c.negated
	}
	switch {
	case c.set == forAll, c.set == single && c.negated:
		return !slices.ContainsFunc(values, func(v string) bool { return !passes(v) })
	default:
		return slices.ContainsFunc(values, passes)
	}
}

// likeARN compares ARNs part by part: a star does not reach over a colon, but in the last part.
func likeARN(pattern, value string) bool {
	p, v := strings.SplitN(pattern, ":", 6), strings.SplitN(value, ":", 6)
	if len(p) != len(v) {
		return false
	}
	for i := range p {
		if !Like(p[i], v[i]) {
			return false
		}
	}
	return true
}

// numeric compares numbers; what is none compares to nothing.
func numeric(compare func(pattern, value float64) bool) func(string, string) bool {
	return func(pattern, value string) bool {
		p, errP := strconv.ParseFloat(pattern, 64)
		v, errV := strconv.ParseFloat(value, 64)
		return errP == nil && errV == nil && compare(p, v)
	}
}
