package instancetype

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed branch-interfaces.txt
var branchText string

//go:embed network-bandwidth.txt
var bandwidthText string

// table holds one number per instance type, by family and then size. The family "*" has the numbers of sizes that a
// family does not list. The files explain the notation.
type table map[string]map[string]int64

func parseTable(text string) (table, error) {
	t := table{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := t.add(line); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	return t, nil
}

func (t table) add(line string) error {
	families, sizes, ok := strings.Cut(line, ":")
	if !ok {
		return fmt.Errorf("no colon")
	}
	numbers := map[string]int64{}
	for field := range strings.FieldsSeq(sizes) {
		names, number, _ := strings.Cut(field, "=")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return err
		}
		for name := range strings.SplitSeq(names, ",") {
			if strings.HasSuffix(name, "x") {
				name += "large"
			}
			if _, twice := numbers[name]; twice {
				return fmt.Errorf("%s twice", name)
			}
			numbers[name] = n
		}
	}
	for family := range strings.FieldsSeq(families) {
		if _, twice := t[family]; twice {
			return fmt.Errorf("%s twice", family)
		}
		t[family] = numbers
	}
	return nil
}

// lookup returns the number of a type, false if the table does not contain it.
func (t table) lookup(name string) (int64, bool) {
	family, size, _ := strings.Cut(name, ".")
	sizes, ok := t[family]
	if !ok {
		return 0, false
	}
	if n, ok := sizes[size]; ok {
		return n, true
	}
	n, ok := t["*"][size]
	return n, ok
}
