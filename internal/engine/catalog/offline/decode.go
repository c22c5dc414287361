package offline

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The file of types is text, compressed by gzip. Its first line is "dovetail-ec2 2": the name of the
// format and its version, which changes with every change that an older reader would misread.
// Lines "source TEXT" follow, which name the sources, then a line with the names
// of the columns and one line per type, sorted by name, with as many fields. Fields are separated by tabs;
// an empty field is a zero value. Within a field entries are separated by "," and their parts by "/".
//
//	name, vcpus, cores, memory (MiB), arch, cpu (manufacturer), ghz, features (of the processor), hypervisor
//	virt        virtualization types
//	flags       letters: m bare metal, c current generation, b burstable, e Nitro enclaves, t encryption in transit
//	usage       usage classes
//	placement   strategies of the placement groups that take it
//	net         network performance as EC2 formats it
//	cards       index/interfaces per network card; card: the default one
//	ipv4, ipv6  addresses per interface
//	ena, efa    ENA support; number of EFA interfaces
//	gpu         name/manufacturer/whole ones/logical ones/MiB each
//	inference, neuron, fpga  name/manufacturer/count/cores each/MiB each
//	disks       count/GB each/kind/NVMe support
//	ebs, ebsmbps        EBS optimization; its maximum bandwidth
//	attach, attachkind  how many EBS volumes can be attached; whether other devices count, too
//	windows     what Windows costs in addition to Linux, in $/h; derived if it ends in "~"
const magic = "dovetail-ec2 2"

// unpack uncompresses a file and parses it.
func unpack(file []byte, parse func([]byte) error) error {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	return parse(text)
}

// parseTypes parses the types, and rejects anything that it does not know.
func (c *Catalog) parseTypes(text []byte) error {
	lines := newLines(text)
	if lines.next() != magic {
		return fmt.Errorf("not in the format %q", magic)
	}
	line := lines.next()
	for ; strings.HasPrefix(line, "source "); line = lines.next() {
		c.sources = append(c.sources, strings.TrimPrefix(line, "source "))
	}
	columns, err := c.columns(strings.Split(line, "\t"))
	if err != nil {
		return err
	}
	n := strings.Count(lines.rest, "\n")
	c.types, c.windows = make([]Type, 0, n), make([]priceFigure, 0, n)
	var fields []string
	for line = lines.next(); line != ""; line = lines.next() {
		fields = fields[:0]
		for field := range strings.SplitSeq(line, "\t") {
			fields = append(fields, field)
		}
		if err := c.row(columns, fields); err != nil {
			return err
		}
	}
	if len(c.types) == 0 {
		return errors.New("no types")
	}
	return nil
}

// cell parses the text of one field into the type.
type cell func(t *Type, text string) error

func (c *Catalog) columns(names []string) ([]cell, error) {
	known := typeCells()
	known["windows"] = func(_ *Type, s string) error { return c.windows[len(c.windows)-1].parse(s) }
	cells := make([]cell, len(names))
	for i, name := range names {
		if cells[i] = known[name]; cells[i] == nil {
			return nil, fmt.Errorf("unknown column %q", name)
		}
		delete(known, name)
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
	c.windows = append(c.windows, priceFigure{})
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

func typeCells() map[string]cell {
	lists := words{}
	return map[string]cell{
		"name":       func(t *Type, s string) error { t.Name = s; return nil },
		"vcpus":      func(t *Type, s string) error { return integer(&t.VCPUs, s) },
		"cores":      func(t *Type, s string) error { return integer(&t.Cores, s) },
		"memory":     func(t *Type, s string) error { return integer(&t.MemoryMiB, s) },
		"arch":       func(t *Type, s string) error { return lists.into(&t.Architectures, s) },
		"cpu":        func(t *Type, s string) error { t.Manufacturer = s; return nil },
		"ghz":        func(t *Type, s string) error { return float(&t.ClockGHz, s) },
		"features":   func(t *Type, s string) error { return lists.into(&t.Features, s) },
		"virt":       func(t *Type, s string) error { return lists.into(&t.Virtualization, s) },
		"placement":  func(t *Type, s string) error { return lists.into(&t.Placement, s) },
		"hypervisor": func(t *Type, s string) error { t.Hypervisor = s; return nil },
		"flags":      flags,
		"usage":      func(t *Type, s string) error { return lists.into(&t.UsageClasses, s) },
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
		"attach":     func(t *Type, s string) error { return integer(&t.EBSAttachments, s) },
		"attachkind": func(t *Type, s string) error { t.EBSAttachmentLimit = s; return nil },
	}
}

func flags(t *Type, s string) error {
	for _, letter := range s {
		switch letter {
		case 'm':
			t.BareMetal = true
		case 'c':
			t.CurrentGeneration = true
		case 'b':
			t.Burstable = true
		case 'e':
			t.NitroEnclaves = true
		case 't':
			t.EncryptionInTransit = true
		default:
			return fmt.Errorf("unknown flag %q", letter)
		}
	}
	return nil
}

// words splits lists, and shares equal ones.
type words map[string][]string

func (w words) into(list *[]string, s string) error {
	known, ok := w[s]
	if !ok {
		known = strings.Split(s, ",")
		w[s] = known
	}
	*list = known
	return nil
}

func cards(t *Type, s string) error {
	t.NetworkCards = make([]NetworkCard, 0, 1+strings.Count(s, ","))
	return entries(s, 2, func(parts []string) error {
		var card NetworkCard
		t.NetworkCards = append(t.NetworkCards, card)
		into := &t.NetworkCards[len(t.NetworkCards)-1]
		return errors.Join(integer(&into.Index, parts[0]), integer(&into.MaxENIs, parts[1]))
	})
}

func gpus(t *Type, s string) error {
	return entries(s, 5, func(parts []string) error {
		g := GPU{Name: parts[0], Manufacturer: parts[1]}
		err := errors.Join(integer(&g.Count, parts[2]), integer(&g.Logical, parts[3]), integer(&g.MemoryMiB, parts[4]))
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

// entries calls take for each entry of a field, and checks its number of parts.
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
