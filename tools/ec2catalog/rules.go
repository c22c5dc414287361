package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// regions are those whose prices and zones the catalog keeps.
var regions = []string{"eu-west-1", "us-east-1", "us-west-2"}

// row is one type as encode writes it.
type row struct {
	instance
	limits
	family, size   string
	manufacturer   string
	ghz            float64
	cores, ipv6    int
	flags          string
	usage          []string
	ena            string
	efa            int
	gpu            string
	inference      string
	neuron, fpga   string
	disks, ebsKind string
}

// derive joins the sources and adds what neither of them knows. A type without network limits in
// either source is retired (EC2 describes it no more) and left out.
func derive(list []instance, known map[string]limits) ([]row, error) {
	clocks := clockOfProcessor(list)
	young, err := newcomers(list, known)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, in := range slices.Concat(list, young) {
		l, ok := known[in.Name]
		if !ok {
			l, ok = limitsFromPriceList(in)
		}
		if !ok {
			continue
		}
		r := row{instance: in, limits: l}
		if err := r.complete(clocks); err != nil {
			return nil, fmt.Errorf("%s: %w", in.Name, err)
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Name, b.Name) })
	return rows, nil
}

// limitsFromPriceList serves the few types that the VPC CNI has not met in its regions. All their
// sizes are bare metal or run on the Nitro hypervisor.
func limitsFromPriceList(in instance) (limits, bool) {
	if in.VPC == nil || in.VPC.MaxENIs == 0 {
		return limits{}, false
	}
	_, size, _ := strings.Cut(in.Name, ".")
	l := limits{ipv4PerENI: in.VPC.IPsPerENI, cards: []card{{0, in.VPC.MaxENIs}}, bareMetal: strings.HasPrefix(size, "metal")}
	if !l.bareMetal {
		l.hypervisor = "nitro"
	}
	return l, true
}

func (r *row) complete(clocks map[string]float64) error {
	r.family, r.size, _ = strings.Cut(r.Name, ".")
	if r.hypervisor == "" && !r.bareMetal {
		r.hypervisor = "xen" // the CNI is unsure of the oldest types only, which are all older than Nitro
		if r.Generation != "previous" {
			return errors.New("unknown hypervisor")
		}
	}
	r.manufacturer = manufacturer(r.Processor)
	if r.ghz = clock(r.Clock); r.ghz == 0 {
		r.ghz = clocks[r.Processor]
	}
	r.cores = r.VCPUs / r.threadsPerCore()
	if r.IPv6 {
		r.ipv6 = r.ipv4PerENI // both limits are one in EC2
	}
	r.flags = r.flagLetters()
	r.usage = r.usageClasses()
	r.ena, r.efa = r.enaSupport(), r.efaInterfaces()
	r.gpu, r.inference, r.neuron, r.fpga = r.gpus(), r.inferenceAccelerators(), r.neuronDevices(), r.fpgas()
	r.disks, r.ebsKind = r.instanceStore(), r.ebsSupport()
	if r.VCPUs < 1 || r.cores < 1 || r.MemoryGiB <= 0 || len(r.Arch) == 0 || len(r.cards) == 0 || r.ipv4PerENI < 1 {
		return fmt.Errorf("incomplete: %+v", r)
	}
	return nil
}

func manufacturer(processor string) string {
	for _, name := range []string{"Intel", "AMD", "AWS", "Apple"} {
		if strings.Contains(processor, name) {
			return name
		}
	}
	return "Intel" // t1.micro, whose processor the list calls "Variable"
}

// clock reads "3.1 GHz" and "Up to 3.7 GHz"; 0 if there is none.
func clock(text string) float64 {
	for _, word := range strings.Fields(text) {
		if f, err := strconv.ParseFloat(word, 64); err == nil {
			return f
		}
	}
	return 0
}

// clockOfProcessor is the clock of a processor where all types that have one agree, for types of
// the same processor that have none.
func clockOfProcessor(list []instance) map[string]float64 {
	clocks := map[string]float64{}
	for _, in := range list {
		c := clock(in.Clock)
		if seen, ok := clocks[in.Processor]; ok && c != 0 && seen != c {
			c = math.NaN() // disagreement sticks, as NaN differs from everything
		}
		if c != 0 {
			clocks[in.Processor] = c
		}
	}
	for p, c := range clocks {
		if math.IsNaN(c) {
			delete(clocks, p)
		}
	}
	return clocks
}

// threadsPerCore: Arm and Apple cores have one thread, AMD's from the 7th generation on too, HPC
// types run with one thread, T2 sells whole cores, and a single vCPU is a core.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/cpu-options-supported-instances-values.html
func (r *row) threadsPerCore() int {
	oneThread := words("c7a m7a r7a c8a m8a r8a m8azn t2 m1 m2 c1 t1")
	switch {
	case r.VCPUs == 1, r.manufacturer == "AWS", r.manufacturer == "Apple", oneThread[r.family], strings.HasPrefix(r.family, "hpc"):
		return 1
	}
	return 2
}

func (r *row) flagLetters() string {
	var b strings.Builder
	for _, f := range []struct {
		letter byte
		set    bool
	}{
		{'m', r.bareMetal},
		{'c', r.Generation == "current"},
		{'b', words("t2 t3 t3a t4g")[r.family]},
		{'e', r.nitroEnclaves()},
		{'t', r.encryptionInTransit()},
	} {
		if f.set {
			b.WriteByte(f.letter)
		}
	}
	return b.String()
}

// nitroEnclaves: virtualised Nitro types with at least 4 vCPUs (2 on Graviton), some families excepted.
// https://docs.aws.amazon.com/enclaves/latest/user/nitro-enclave.html#nitro-enclave-reqs
func (r *row) nitroEnclaves() bool {
	except := words(`a1 c7a c7gd c7gn c7i c7i-flex g4ad g5g hpc7g im4gn is4gen m7a m7g m7gd m7i m7i-flex
		r7a r7g r7gd r7i r7iz t3 t3a t4g trn1 trn1n vt1`) // of younger families the page names none
	least := 4
	if r.manufacturer == "AWS" {
		least = 2
	}
	return r.hypervisor == "nitro" && !r.bareMetal && r.VCPUs >= least && !except[r.family] && !strings.HasPrefix(r.family, "u")
}

// encryptionInTransit: everything on Nitro but its earlier cards.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/data-protection.html#encryption-transit
func (r *row) encryptionInTransit() bool {
	earlier := words(`a1 c5 c5a c5ad c5d c6g c6gd g5g i3 m5 m5a m5ad m5d m6g m6gd r5 r5a r5ad r5b r5d r6g r6gd
		t3 t3a t4g x2gd z1d mac1 mac2 mac2-m2 mac2-m2pro mac2-m1ultra`)
	return (r.hypervisor == "nitro" || r.bareMetal) && !earlier[r.family]
}

// usageClasses are those with a price anywhere; what has none at all is sold on demand.
func (r *row) usageClasses() []string {
	classes := []string{"on-demand"}
	if r.alsoForSpot {
		return append(classes, "spot")
	}
	for _, p := range r.Pricing {
		if p.Linux.Spot > 0 {
			return append(classes, "spot")
		}
	}
	return classes
}

// enaSupport: Nitro knows no other network; some Xen types take ENA if the image has its driver.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/enhanced-networking-ena.html
func (r *row) enaSupport() string {
	switch {
	case r.hypervisor == "nitro" || r.bareMetal:
		return "required"
	case words("f1 h1 i3 p3 r4 x1 x1e")[r.family], r.Name == "m4.16xlarge":
		return "supported"
	}
	return "unsupported"
}

// efaInterfaces: one per network card on the types that have EFA.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html#efa-instance-types
func (r *row) efaInterfaces() int {
	for _, group := range efaTypes {
		if words(group.families)[r.family] && (group.sizes == "" || words(group.sizes)[r.size]) {
			return len(r.cards)
		}
	}
	return 0
}

var efaTypes = []struct{ families, sizes string }{
	{"m5dn m5n r5dn r5n", "24xlarge metal"},
	{"m5zn x2iezn", "12xlarge metal"},
	{"c5n", "9xlarge 18xlarge metal"},
	{"c6a m6a r6a", "48xlarge metal"},
	{"c6i c6id c6in m6i m6id m6idn m6in r6i r6id r6idn r6in x2idn x2iedn i4i", "32xlarge metal"},
	{"c6gn im4gn i4g", "16xlarge"},
	{"c7a c7i m7a m7i r7a r7i i7ie", "48xlarge metal-48xl"},
	{"c7g c7gd c7gn m7g m7gd r7g r7gd", "16xlarge metal"},
	{"r7iz", "32xlarge metal-32xl"},
	{"c8g c8gd m8g m8gd r8g r8gd x8g", "24xlarge 48xlarge metal-24xl metal-48xl"},
	{"i8g", "24xlarge 48xlarge metal-24xl metal-48xl"},
	{"i3en", "12xlarge 24xlarge metal"},
	{"u7i-6tb u7i-8tb u7i-12tb u7in-16tb u7in-24tb u7in-32tb", ""},
	{"dl1 p3dn p4d p4de p5 p5e p5en trn2", ""},
	{"trn1", "32xlarge"},
	{"trn1n", ""},
	{"inf1 vt1", "24xlarge"},
	{"g4dn", "8xlarge 12xlarge 16xlarge metal"},
	{"g5 g6 g6e", "8xlarge 12xlarge 16xlarge 24xlarge 48xlarge"},
	{"gr6", "8xlarge"},
	{"hpc6a hpc6id hpc7a hpc7g", ""},
}

// gpuNames maps the list's models to DescribeInstanceTypes' words. mib is per GPU, for models of
// which EC2 reports what the driver leaves, not the nominal size; 0 = as listed.
var gpuNames = map[string]struct {
	name, manufacturer string
	mib                int64
}{
	"NVIDIA A10G":            {"A10G", "NVIDIA", 0},
	"NVIDIA L4":              {"L4", "NVIDIA", 22888},
	"NVIDIA L40S":            {"L40S", "NVIDIA", 45776},
	"NVIDIA T4 Tensor Core":  {"T4", "NVIDIA", 0},
	"NVIDIA T4G Tensor Core": {"T4g", "NVIDIA", 0},
	"NVIDIA Tesla V100":      {"V100", "NVIDIA", 0},
	"NVIDIA Tesla M60":       {"M60", "NVIDIA", 0},
	"NVIDIA Tesla K80":       {"K80", "NVIDIA", 0},
	"NVIDIA A100":            {"A100", "NVIDIA", 0},
	"NVIDIA H100":            {"H100", "NVIDIA", 0},
	"NVIDIA H200":            {"H200", "NVIDIA", 0},
	"AMD Radeon Pro V520":    {"Radeon Pro V520", "AMD", 0},
}

func (r *row) gpus() string {
	if r.family == "dl1" { // the list knows no Gaudi
		return "Gaudi HL-205/Habana/8/32768"
	}
	g, ok := gpuNames[r.GPUModel]
	if !ok {
		return ""
	}
	mib := r.GPUMemoryGiB * 1024 / int64(r.GPUs)
	if g.mib != 0 {
		mib = g.mib
	}
	return fmt.Sprintf("%s/%s/%d/%d", g.name, g.manufacturer, r.GPUs, mib)
}

// neuronFamilies: the device, its cores and memory. The list names them all Inferentia.
// https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/arch/neuron-hardware/
var neuronFamilies = map[string]struct {
	name       string
	cores, mib int
}{
	"inf1":  {"Inferentia", 4, 8192},
	"inf2":  {"Inferentia2", 2, 32768},
	"trn1":  {"Trainium", 2, 32768},
	"trn1n": {"Trainium", 2, 32768},
	"trn2":  {"Trainium2", 8, 98304},
}

func (r *row) neuronDevices() string {
	n, ok := neuronFamilies[r.family]
	if !ok {
		return ""
	}
	count := r.GPUs
	if r.Name == "trn2.48xlarge" {
		count = 16 // the list has 1
	}
	return fmt.Sprintf("%s/AWS/%d/%d/%d", n.name, count, n.cores, n.mib)
}

func (r *row) inferenceAccelerators() string {
	if !strings.HasPrefix(r.family, "inf") {
		return ""
	}
	n := neuronFamilies[r.family]
	return fmt.Sprintf("%s/AWS/%d/0/%d", n.name, r.GPUs, n.mib)
}

func (r *row) fpgas() string {
	name := map[string]string{"f1": "Virtex UltraScale (VU9P)", "f2": "Virtex UltraScale+ (VU47P)"}[r.family]
	if name == "" {
		return ""
	}
	mib := map[string]int{"f1": 65536, "f2": 81920}[r.family]
	return fmt.Sprintf("%s/Xilinx/%d/0/%d", name, r.FPGAs, mib)
}

// missingDisks belong to types of which the list knows the price only.
var missingDisks = map[string]string{
	"hpc6id.32xlarge": "4/3800/ssd/required",
	"p4de.24xlarge":   "8/1000/ssd/required",
	"p5e.48xlarge":    "8/3800/ssd/required",
	"trn2.48xlarge":   "4/1920/ssd/required",
}

func (r *row) instanceStore() string {
	if d, ok := missingDisks[r.Name]; ok {
		return d
	}
	s := r.Storage
	if s == nil || s.Devices == 0 || s.SizeGB == 0 {
		return ""
	}
	kind, nvme := "hdd", "unsupported"
	if s.SSD {
		kind = "ssd"
	}
	if s.NVMe {
		nvme = "required"
	}
	return fmt.Sprintf("%d/%d/%s/%s", s.Devices, s.SizeGB, kind, nvme)
}

// ebsSupport: always on with Nitro and with the last Xen families, an option of earlier ones.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ebs-optimized.html
func (r *row) ebsSupport() string {
	switch {
	case r.hypervisor == "nitro" || r.bareMetal:
		return "default"
	case !r.EBSOptimized:
		return "unsupported"
	case words("c1 c3 i2 m1 m2 m3 r3")[r.family]:
		return "supported"
	}
	return "default"
}

// words is the set of the words of a text.
func words(text string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		set[w] = true
	}
	return set
}
