package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// module is a source of facts at one version.
type module struct {
	path, version, sum string
}

var (
	// priceList is the data set behind ec2instances.info: what each type is, and what it costs where.
	priceList = module{
		"github.com/cristim/ec2-instances-info", "v0.0.0-20250528091325-32acf84f42eb",
		"h1:exJ9FsMTbotSG5xgDHmFJE84gV3MZ4JRpR8nhbgJz/k=",
	}
	// networkLimits is AWS' VPC CNI, which ships what DescribeInstanceTypes says of networking.
	networkLimits = module{
		"github.com/aws/amazon-vpc-cni-k8s", "v1.23.2",
		"h1:Ka5CQyoDQhTJ41BruEiI35Xs7LJoC+zUubWI5+xbrLc=",
	}
)

// download makes the go command fetch and verify a module, and returns its directory.
func download(m module) (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version).Output()
	if err != nil {
		return "", fmt.Errorf("download %s@%s: %w: %s", m.path, m.version, err, out)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", fmt.Errorf("download %s@%s: %w", m.path, m.version, err)
	}
	if got.Sum != m.sum {
		return "", fmt.Errorf("download %s@%s: checksum %s, want %s", m.path, m.version, got.Sum, m.sum)
	}
	return got.Dir, nil
}

// instance is one entry of the price list.
type instance struct {
	Name      string   `json:"instance_type"`
	VCPUs     int      `json:"vCPU"`
	MemoryGiB float64  `json:"memory"`
	Arch      []string `json:"arch"`
	Processor string   `json:"physical_processor"`
	Clock     string   `json:"clock_speed_ghz"` // "3.1 GHz", "Up to 3.7 GHz"
	// Generation is "current" or "previous".
	Generation         string `json:"generation"`
	NetworkPerformance string `json:"network_performance"`
	IPv6               bool   `json:"ipv6_support"`
	GPUs               int    `json:"GPU"` // also counts Inferentia and Trainium
	GPUModel           string `json:"GPU_model"`
	GPUMemoryGiB       int64  `json:"GPU_memory"` // of all together
	FPGAs              int    `json:"FPGA"`
	EBSOptimized       bool   `json:"ebs_optimized"`
	EBSMaxMbps         int    `json:"ebs_max_bandwidth"`
	Storage            *struct {
		Devices int  `json:"devices"`
		SizeGB  int  `json:"size"` // of each
		SSD     bool `json:"ssd"`
		NVMe    bool `json:"nvme_ssd"`
	} `json:"storage"`
	VPC *struct {
		MaxENIs   int `json:"max_enis"`
		IPsPerENI int `json:"ips_per_eni"`
	} `json:"vpc"`
	ZoneIDs map[string][]string     `json:"availability_zones"` // by region
	Pricing map[string]regionPrices `json:"pricing"`

	alsoForSpot bool // sold as spot, at a price that is not listed
}

type regionPrices struct {
	Linux struct {
		OnDemand dollars `json:"ondemand"`
		Spot     dollars `json:"spot_avg"`
	} `json:"linux"`
}

// dollars is a price as the list writes it, a decimal string; 0 when there is none.
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

func readInstances(path string) ([]instance, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []instance
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// limits is what the VPC CNI knows of a type.
type limits struct {
	ipv4PerENI  int
	defaultCard int
	cards       []card
	hypervisor  string // "nitro", "xen"; "" on most bare metal
	bareMetal   bool
}

type card struct{ index, enis int }

// readLimits takes the composite literal of instanceNetworkingLimits apart. It reads the source, as
// the package offers no way to list its types and would bring the whole AWS SDK along.
func readLimits(path string) (map[string]limits, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	all := map[string]limits{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "instanceNetworkingLimits" {
			return true
		}
		for name, value := range pairs(spec.Values[0]) {
			all[name] = limitsOf(value)
		}
		return false
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no instanceNetworkingLimits", path)
	}
	return all, nil
}

func limitsOf(value ast.Expr) limits {
	fields := pairs(value)
	l := limits{
		ipv4PerENI:  number(fields["IPv4Limit"]),
		defaultCard: number(fields["DefaultNetworkCardIndex"]),
		hypervisor:  word(fields["HypervisorType"]),
		bareMetal:   word(fields["IsBareMetal"]) == "true",
	}
	if l.hypervisor == "unknown" {
		l.hypervisor = ""
	}
	if list, ok := fields["NetworkCards"].(*ast.CompositeLit); ok {
		for _, e := range list.Elts {
			f := pairs(e)
			l.cards = append(l.cards, card{index: number(f["NetworkCardIndex"]), enis: number(f["MaximumNetworkInterfaces"])})
		}
	}
	return l
}

// pairs returns the keyed elements of a composite literal.
func pairs(e ast.Expr) map[string]ast.Expr {
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

func number(e ast.Expr) int {
	n, _ := strconv.Atoi(word(e)) // what is no number fails the checks of derive
	return n
}
