package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// prices are what the sources know, in $/h (CNY/h in China) by region and type. Absent is unknown.
type prices struct {
	// list and spot are of May 2025.
	list, windows, spot table
	// recent are of July 2026: those of us-east-1 and GovCloud. In China they are of November 2024.
	recent table
}

type table map[string]map[string]float64

func (t table) put(region, name string, price float64) {
	if price <= 0 {
		return
	}
	if t[region] == nil {
		t[region] = map[string]float64{}
	}
	t[region][name] = price
}

func readPrices() (prices, error) {
	p := prices{list: table{}, windows: table{}, spot: table{}, recent: table{}}
	text, err := priceList.read("data/instances.json")
	if err != nil {
		return p, err
	}
	if err := p.readList(text); err != nil {
		return p, fmt.Errorf("%s: %w", priceList.path, err)
	}
	for _, name := range []string{tableOfAWS, tableOfGovCloud, tableOfChina} {
		text, err := priceTables.read(name)
		if err != nil {
			return p, err
		}
		if err := p.readTable(text); err != nil {
			return p, fmt.Errorf("%s: %w", name, err)
		}
	}
	return p, nil
}

// readList reads the data set of ec2instances.info.
func (p prices) readList(text []byte) error {
	var list []struct {
		Name    string `json:"instance_type"`
		Pricing map[string]struct {
			Linux, MSWin struct {
				OnDemand dollars `json:"ondemand"`
				Spot     dollars `json:"spot_avg"`
			}
		} `json:"pricing"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, in := range list {
		for region, of := range in.Pricing {
			p.list.put(region, in.Name, float64(of.Linux.OnDemand))
			p.windows.put(region, in.Name, float64(of.MSWin.OnDemand))
			p.spot.put(region, in.Name, float64(of.Linux.Spot))
		}
	}
	return nil
}

// dollars parses a price of the list, a decimal string; 0 if there is none.
type dollars float64

func (d *dollars) UnmarshalJSON(text []byte) error {
	s := strings.Trim(string(text), `"`)
	if s == "" || s == "null" || s == "N/A" {
		return nil
	}
	f, err := strconv.ParseFloat(s, 64)
	*d = dollars(f)
	return err
}

// readTable reads a Go file with one literal of prices by region and type.
func (p prices) readTable(text []byte) error {
	found := 0
	for region, types := range literal(text) {
		for name, price := range pairs(types) {
			f, err := strconv.ParseFloat(word(price), 64)
			if err != nil {
				return fmt.Errorf("%s in %s: %w", name, region, err)
			}
			p.recent.put(region, name, f)
			found++
		}
	}
	if found == 0 {
		return fmt.Errorf("no prices")
	}
	return nil
}

// literal returns the elements of the first map literal of a Go file. It reads the source, as importing the package
// would bring its dependencies along.
func literal(text []byte) map[string]ast.Expr {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	var found map[string]ast.Expr
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && found == nil && len(spec.Values) == 1 {
			found = pairs(spec.Values[0])
		}
		return found == nil
	})
	return found
}

// pairs returns the keyed elements of a composite literal.
func pairs(e ast.Expr) map[string]ast.Expr {
	if pointer, ok := e.(*ast.UnaryExpr); ok {
		e = pointer.X
	}
	found := map[string]ast.Expr{}
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return found
	}
	for _, e := range literal.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			found[word(kv.Key)] = kv.Value
		}
	}
	return found
}

// word returns an identifier or the content of a literal.
func word(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		return strings.Trim(e.Value, `"`)
	}
	return ""
}

// fee is what Windows costs in addition to Linux, in $/h.
type fee struct {
	amount float64
	// derived from the number of vCPUs.
	derived bool
}

// Windows costs the same for each vCPU of nearly every type of the price list; of flex types, 5 % less.
const (
	windowsPerVCPU     = 0.046
	windowsPerFlexVCPU = 0.0437
)

// windowsFees returns the fee of each type that runs Windows. It is the same in all regions, and the same for spot.
// For some types of previous generations regions disagree: us-east-1's fee then counts as derived. Types that are
// newer than the price list pay by vCPU. https://aws.amazon.com/ec2/pricing/on-demand/
func (p prices) windowsFees(known facts) map[string]fee {
	listed := map[string]bool{} // with any price
	for _, of := range p.list {
		for name := range of {
			listed[name] = true
		}
	}
	fees := map[string]fee{}
	for _, t := range known.types {
		listedFee, found := p.windowsFee(t.Name)
		switch {
		case found:
			fees[t.Name] = listedFee
		case !listed[t.Name] && t.runsWindows():
			perVCPU := windowsPerVCPU
			if strings.Contains(t.Name, "-flex.") {
				perVCPU = windowsPerFlexVCPU
			}
			fees[t.Name] = fee{round(perVCPU * float64(t.VCpuInfo.DefaultVCpus)), true}
		}
	}
	return fees
}

// windowsFee is us-east-1's, or that of the first region by name that has one; derived if regions disagree.
func (p prices) windowsFee(name string) (found fee, ok bool) {
	const rounding = 0.001 // of lists with three decimals
	for _, region := range append([]string{base}, slices.Sorted(maps.Keys(p.windows))...) {
		linux, windows := p.list[region][name], p.windows[region][name]
		switch amount := round(windows - linux); {
		case linux == 0 || windows <= linux:
		case !ok:
			found, ok = fee{amount: amount}, true
		case math.Abs(amount-found.amount) > rounding:
			found.derived = true
		}
	}
	return found, ok
}

// runsWindows reports whether EC2 probably offers the type with Windows: x86, and not for accelerators that have no
// drivers there.
func (t instanceType) runsWindows() bool {
	return slices.Contains(t.ProcessorInfo.SupportedArchitectures, "x86_64") && !strings.HasPrefix(t.Name, "hpc") &&
		len(t.NeuronInfo.NeuronDevices) == 0 && len(t.FpgaInfo.Fpgas) == 0 && !strings.HasPrefix(t.Name, "dl")
}

// round keeps seven decimals, more than any price has.
func round(price float64) float64 {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(price, 'f', 7, 64), 64)
	return f
}
