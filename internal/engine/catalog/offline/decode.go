package offline

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// The file is text, compressed with gzip. Its first line is "dovetail-ec2 1": the name of the
// format and its version, which changes with every change that an older reader would misread.
// Lines that start with a word and a space follow:
//
//	source TEXT             where a part of the data comes from
//	region NAME ZONE-ID...  a region with prices, and the zones that the masks below refer to
//
// then a line with the names of the columns and one line per type, sorted by name, with as many
// fields. Fields are separated by tabs; an empty field is a zero value. Within a field entries are
// separated by "," and their parts by "/".
//
//	name, vcpus, cores, memory (MiB), arch, cpu (manufacturer), ghz, hypervisor
//	flags       letters: m bare metal, c current generation, b burstable, e Nitro enclaves, t encryption in transit
//	usage       usage classes
//	net         network performance in EC2's words
//	cards       index/interfaces per network card; card: the default one
//	ipv4, ipv6  addresses per interface
//	ena, efa    ENA support; number of EFA interfaces
//	gpu         name/manufacturer/count/MiB each
//	inference, neuron, fpga  name/manufacturer/count/cores each/MiB each
//	disks       count/GB each/kind/NVMe support
//	ebs, ebsmbps  EBS optimisation; its maximum bandwidth
//	REGION od, REGION spot, REGION zones  $/h, $/h, hexadecimal mask of the region's zones
const magic = "dovetail-ec2 1"

// decode reads a catalog, and refuses one that it does not understand in full.
func decode(file []byte) (*Catalog, error) {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("offline catalog: %w", err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("offline catalog: %w", err)
	}
	c, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("offline catalog: %w", err)
	}
	return c, nil
}

func parse(text []byte) (*Catalog, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	if !lines.Scan() || lines.Text() != magic {
		return nil, fmt.Errorf("not in the format %q", magic)
	}
	c := &Catalog{regions: map[string]*market{}}
	for lines.Scan() && c.head(lines.Text()) {
	}
	columns, err := c.columns(strings.Split(lines.Text(), "\t"))
	if err != nil {
		return nil, err
	}
	for lines.Scan() {
		if err := c.row(columns, strings.Split(lines.Text(), "\t")); err != nil {
			return nil, err
		}
	}
	if len(c.types) == 0 {
		return nil, errors.New("no types")
	}
	return c, lines.Err()
}

// head takes a line above the table; false means that the line is the table's first.
func (c *Catalog) head(line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "source":
		c.sources = append(c.sources, rest)
	case "region":
		fields := strings.Fields(rest)
		c.regions[fields[0]] = &market{zoneIDs: fields[1:]}
		c.names = append(c.names, fields[0])
		slices.Sort(c.names)
	default:
		return false
	}
	return true
}

// cell puts the text of one field into the type, or into the market's last entry.
type cell func(t *Type, text string) error

func (c *Catalog) columns(names []string) ([]cell, error) {
	known := typeCells()
	cells := make([]cell, len(names))
	for i, name := range names {
		region, what, regional := strings.Cut(name, " ")
		if !regional {
			cells[i] = known[name]
			delete(known, name)
		} else if m := c.regions[region]; m != nil {
			cells[i] = m.cell(what)
		}
		if cells[i] == nil {
			return nil, fmt.Errorf("unknown column %q", name)
		}
	}
	for name := range known {
		return nil, fmt.Errorf("missing column %q", name)
	}
	return cells, nil
}

func (c *Catalog) row(columns []cell, fields []string) error {
	if len(fields) != len(columns) {
		return fmt.Errorf("%s: %d fields instead of %d", fields[0], len(fields), len(columns))
	}
	for _, m := range c.regions {
		m.onDemand, m.spot, m.zones = append(m.onDemand, 0), append(m.spot, 0), append(m.zones, 0)
	}
	var t Type
	for i, text := range fields {
		if text == "" {
			continue
		}
		if err := columns[i](&t, text); err != nil {
			return fmt.Errorf("%s: field %d: %w", fields[0], i+1, err)
		}
	}
	if n := len(c.types); n > 0 && c.types[n-1].Name >= t.Name {
		return fmt.Errorf("%s: not sorted", t.Name)
	}
	c.types = append(c.types, t)
	return nil
}

func (m *market) cell(what string) cell {
	switch what {
	case "od":
		return func(_ *Type, s string) error { return float(&m.onDemand[len(m.onDemand)-1], s) }
	case "spot":
		return func(_ *Type, s string) error { return float(&m.spot[len(m.spot)-1], s) }
	case "zones":
		return func(_ *Type, s string) (err error) {
			m.zones[len(m.zones)-1], err = strconv.ParseUint(s, 16, 64)
			return err
		}
	}
	return nil
}

func typeCells() map[string]cell {
	return map[string]cell{
		"name":       func(t *Type, s string) error { t.Name = s; return nil },
		"vcpus":      func(t *Type, s string) error { return integer(&t.VCPUs, s) },
		"cores":      func(t *Type, s string) error { return integer(&t.Cores, s) },
		"memory":     func(t *Type, s string) error { return integer(&t.MemoryMiB, s) },
		"arch":       func(t *Type, s string) error { t.Architectures = strings.Split(s, ","); return nil },
		"cpu":        func(t *Type, s string) error { t.Manufacturer = s; return nil },
		"ghz":        func(t *Type, s string) error { return float(&t.ClockGHz, s) },
		"hypervisor": func(t *Type, s string) error { t.Hypervisor = s; return nil },
		"flags":      flags,
		"usage":      func(t *Type, s string) error { t.UsageClasses = strings.Split(s, ","); return nil },
		"net":        func(t *Type, s string) error { t.NetworkPerformance = s; return nil },
		"cards":      cards,
		"card":       func(t *Type, s string) error { return integer(&t.DefaultCard, s) },
		"ipv4":       func(t *Type, s string) error { return integer(&t.IPv4PerENI, s) },
		"ipv6":       func(t *Type, s string) error { return integer(&t.IPv6PerENI, s) },
		"ena":        func(t *Type, s string) error { t.ENASupport = s; return nil },
		"efa":        func(t *Type, s string) error { return integer(&t.EFAMax, s) },
		"gpu":        gpus,
		"inference":  func(t *Type, s string) error { return accelerators(&t.InferenceAccelerators, s) },
		"neuron":     func(t *Type, s string) error { return accelerators(&t.Neuron, s) },
		"fpga":       func(t *Type, s string) error { return accelerators(&t.FPGAs, s) },
		"disks":      disks,
		"ebs":        func(t *Type, s string) error { t.EBSOptimized = s; return nil },
		"ebsmbps":    func(t *Type, s string) error { return integer(&t.EBSMaxMbps, s) },
	}
}

func flags(t *Type, s string) error {
	for _, letter := range s {
		flag, ok := map[rune]*bool{
			'm': &t.BareMetal, 'c': &t.CurrentGeneration, 'b': &t.Burstable, 'e': &t.NitroEnclaves, 't': &t.EncryptionInTransit,
		}[letter]
		if !ok {
			return fmt.Errorf("unknown flag %q", letter)
		}
		*flag = true
	}
	return nil
}

func cards(t *Type, s string) error {
	return entries(s, 2, func(parts []string) error {
		var card NetworkCard
		t.NetworkCards = append(t.NetworkCards, card)
		into := &t.NetworkCards[len(t.NetworkCards)-1]
		return errors.Join(integer(&into.Index, parts[0]), integer(&into.MaxENIs, parts[1]))
	})
}

func gpus(t *Type, s string) error {
	return entries(s, 4, func(parts []string) error {
		g := GPU{Name: parts[0], Manufacturer: parts[1]}
		err := errors.Join(integer(&g.Count, parts[2]), integer(&g.MemoryMiB, parts[3]))
		t.GPUs = append(t.GPUs, g)
		return err
	})
}

func accelerators(into *[]Accelerator, s string) error {
	return entries(s, 5, func(parts []string) error {
		a := Accelerator{Name: parts[0], Manufacturer: parts[1]}
		err := errors.Join(integer(&a.Count, parts[2]), integer(&a.CoresPerDevice, parts[3]), integer(&a.MemoryMiB, parts[4]))
		*into = append(*into, a)
		return err
	})
}

func disks(t *Type, s string) error {
	return entries(s, 4, func(parts []string) error {
		d := &t.Disks
		err := errors.Join(integer(&d.Count, parts[0]), integer(&d.SizeGB, parts[1]))
		d.TotalGB, d.Kind, d.NVMe = d.Count*d.SizeGB, parts[2], parts[3]
		return err
	})
}

// entries calls take for each entry of a field, and insists on its number of parts.
func entries(s string, parts int, take func([]string) error) error {
	for entry := range strings.SplitSeq(s, ",") {
		p := strings.Split(entry, "/")
		if len(p) != parts {
			return fmt.Errorf("%q has %d parts instead of %d", entry, len(p), parts)
		}
		if err := take(p); err != nil {
			return err
		}
	}
	return nil
}

func integer[T int | int64](into *T, s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	*into = T(n)
	return err
}

func float(into *float64, s string) (err error) {
	*into, err = strconv.ParseFloat(s, 64)
	return err
}
