package ec2

import (
	"cmp"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// listInput is what the Describe calls have in common.
type listInput struct {
	DryRun     bool     `query:"DryRun"`
	Filters    []Filter `query:"Filter"`
	MaxResults *int     `query:"MaxResults"`
	NextToken  string   `query:"NextToken"`
}

// resourceKind is a kind of thing that a Describe call lists.
type resourceKind[T any] struct {
	// id is the unique identifier of a thing, for the parameter that lists IDs.
	id func(T) string
	// order gives the text by which the list is sorted and paged; nil = id.
	order func(T) string
	// properties that filters know.
	properties properties[T]
	// tags are nil for things without.
	tags func(T) map[string]string
	ids  idRules
	// Limits of MaxResults.
	minResults, maxResults int
	// idsExcludePages rejects MaxResults together with IDs.
	idsExcludePages bool
}

// idRules are how one kind of ID looks and how EC2 rejects one.
type idRules struct {
	prefix    string // "subnet"
	malformed string // error codes
	notFound  string
	// missing words the error for IDs that do not exist.
	missing func(ids []string) string
}

var hexadecimal = regexp.MustCompile(`^[0-9a-f]{8}([0-9a-f]{9})?$`)

// check rejects an ID that cannot be one.
func (r idRules) check(id string) error {
	rest, ok := strings.CutPrefix(id, r.prefix+"-")
	if !ok || !hexadecimal.MatchString(rest) {
		return protocol.Errorf(r.malformed, `Invalid id: "%s" (expecting "%s-...")`, id, r.prefix)
	}
	return nil
}

// absent is the error for IDs that do not exist.
func (r idRules) absent(ids ...string) error {
	return protocol.Errorf(r.notFound, "%s", r.missing(ids))
}

// does words "The subnet ID 'a' does not exist" and its plural.
func does(what string) func([]string) string {
	return func(ids []string) string {
		if len(ids) == 1 {
			return "The " + what + " ID '" + ids[0] + "' does not exist"
		}
		return "The " + what + " IDs '" + strings.Join(ids, ", ") + "' do not exist"
	}
}

// page is a part of a list and the token for the next.
type page[T any] struct {
	items []T
	next  *string
}

// list picks from all what the call requests. Each ID must exist.
func (n resourceKind[T]) list(in listInput, ids []string, all []T) (page[T], error) {
	match, err := compileFilters(in.Filters, n.properties, n.tags)
	if err != nil {
		return page[T]{}, err
	}
	if err := n.checkPaging(in, ids); err != nil {
		return page[T]{}, err
	}
	if in.DryRun {
		return page[T]{}, dryRun()
	}
	if len(ids) > 0 {
		if all, err = n.pick(ids, all); err != nil {
			return page[T]{}, err
		}
	}
	return n.cut(in, ids, all, match)
}

func (n resourceKind[T]) checkPaging(in listInput, ids []string) error {
	if in.MaxResults == nil {
		return nil
	}
	if n.idsExcludePages && len(ids) > 0 {
		return combination("The parameter %sId cannot be used with the parameter maxResults", n.ids.prefix)
	}
	switch m := *in.MaxResults; {
	case m < n.minResults:
		return invalidValue("Value ( %d ) for parameter maxResults is invalid. Expecting a value greater than or equal to %d.", m, n.minResults)
	case m > n.maxResults:
		return invalidValue("Value ( %d ) for parameter maxResults is invalid. Expecting a value less than or equal to %d.", m, n.maxResults)
	}
	return nil
}

// pick returns the things with these IDs in the order of all.
func (n resourceKind[T]) pick(ids []string, all []T) ([]T, error) {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		if err := n.ids.check(id); err != nil {
			return nil, err
		}
		wanted[id] = true
	}
	picked := make([]T, 0, len(wanted))
	for _, t := range all {
		if id := n.id(t); wanted[id] {
			picked = append(picked, t)
			delete(wanted, id)
		}
	}
	if len(wanted) == 0 {
		return picked, nil
	}
	var absent []string
	for _, id := range ids {
		if wanted[id] {
			absent = append(absent, id)
			delete(wanted, id)
		}
	}
	return nil, n.ids.absent(absent...)
}

// cut returns the page of the matching things that follows the token. The token holds the place of the last thing of
// the page before, so that things that come and go meanwhile shift nothing.
func (n resourceKind[T]) cut(in listInput, ids []string, all []T, match func(T) bool) (page[T], error) {
	order := n.order
	if order == nil {
		order = n.id
	}
	after, err := decodeToken(in.NextToken)
	if err != nil {
		return page[T]{}, err
	}
	if !slices.IsSortedFunc(all, func(a, b T) int { return cmp.Compare(order(a), order(b)) }) {
		all = slices.SortedStableFunc(slices.Values(all), func(a, b T) int { return cmp.Compare(order(a), order(b)) })
	}
	limit := n.maxResults
	if in.MaxResults != nil {
		limit = *in.MaxResults
	} else if len(ids) > 0 {
		limit = len(ids) // requested by ID, all fit on one page
	}
	var p page[T]
	for _, t := range all {
		if in.NextToken != "" && order(t) <= after || !match(t) {
			continue
		}
		if len(p.items) == limit {
			next := encodeToken(order(p.items[limit-1]))
			p.next = &next
			break
		}
		p.items = append(p.items, t)
	}
	return p, nil
}

const tokenMark = "dovetail\x00"

func encodeToken(place string) string {
	return base64.StdEncoding.EncodeToString([]byte(tokenMark + place))
}

func decodeToken(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.StdEncoding.DecodeString(token)
	place, ok := strings.CutPrefix(string(raw), tokenMark)
	if err != nil || !ok {
		return "", protocol.Errorf("InvalidNextToken", "The specified token is not valid")
	}
	return place, nil
}
