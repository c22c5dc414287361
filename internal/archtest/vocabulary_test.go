package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	// aboutMoney are names of JSON fields that are, or may be, amounts of money or shares.
	aboutMoney = regexp.MustCompile(`(?i)price|cost|saving|saves|saved|perhour|permonth|spent|spend|dollar|percent`)
	// moneyWords is the vocabulary: a price is of an offering, a cost of nodes and commands, both in $/h or, where the name reports it,
	// in $ per month of 730 h. What a name states in addition comes before.
	moneyWords = regexp.MustCompile(`^(price|(hourly|monthly|total)(Cost|Savings)|[a-z]\w*(HourlyCost|MonthlyCost))$`)
	// noAmounts are names in texts and structures that hold amounts, which are no amounts themselves.
	noAmounts = []string{
		"prices", "pricesProblem", "priceBasis", "priceDerived", "priceTable", "priceOverlaid", "priced", "unpriced", "cost", "ruleCosts",
		"leastSaved", // a share, from 0 to 1
	}
)

// otherVocabularies are folders and files with a JSON that is not of reports: APIs of AWS and of Kubernetes, inputs, and what a recording
// keeps to be replayed.
var otherVocabularies = []string{
	"api/", "internal/aws/", "lab/", "tools/", "internal/recorder/calls.go", "internal/recorder/facts.go", "internal/recorder/oldnames.go",
}

// Programs that read the JSON of one command can read that of all others.
func TestAmountsOfMoneyHaveOneVocabularyInJSON(t *testing.T) {
	fields := 0
	goFiles(t, func(rel string, source []byte) {
		other := func(p string) bool { return strings.HasPrefix(rel, p) }
		if strings.HasSuffix(rel, "_test.go") || slices.ContainsFunc(otherVocabularies, other) {
			return
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, rel, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for pos, name := range jsonNames(f) {
			if !aboutMoney.MatchString(name) {
				continue
			}
			fields++
			if !moneyWords.MatchString(name) && !slices.Contains(noAmounts, name) {
				t.Errorf("%v: JSON field %q is not of the vocabulary for money, %v", files.Position(pos), name, moneyWords)
			}
		}
	})
	if fields < 50 {
		t.Errorf("only %d fields are about money: the test does not find them", fields)
	}
}

// jsonNames are the names that the tags of the fields of structs state.
func jsonNames(f *ast.File) map[token.Pos]string {
	out := map[token.Pos]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if field, ok := n.(*ast.Field); ok && field.Tag != nil {
			tag, err := strconv.Unquote(field.Tag.Value)
			if name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ","); err == nil && name != "" {
				out[field.Pos()] = name
			}
		}
		return true
	})
	return out
}
