package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// column is one field of a line: its name in the header, its text for a row ("" = zero value).
type column struct {
	name string
	text func(row) string
}

// encode writes the format that the package offline documents.
func encode(rows []row) []byte {
	list := make([]instance, len(rows))
	for i, r := range rows {
		list[i] = r.instance
	}
	zones := zonesOf(list)
	columns := typeColumns()
	var b bytes.Buffer
	fmt.Fprintln(&b, "dovetail-ec2 1")
	for _, m := range []module{priceList, networkLimits} {
		fmt.Fprintln(&b, "source", m.path, m.version)
	}
	fmt.Fprintln(&b, "source rules.go, families.txt and repriced.txt of tools/ec2catalog")
	for _, region := range regions {
		fmt.Fprintln(&b, "region", region, strings.Join(zones[region], " "))
		columns = append(columns, priceColumns(region, zones[region])...)
	}
	writeLine(&b, columns, func(c column) string { return c.name })
	for _, r := range rows {
		writeLine(&b, columns, func(c column) string { return c.text(r) })
	}
	return b.Bytes()
}

func writeLine(b *bytes.Buffer, columns []column, text func(column) string) {
	for i, c := range columns {
		if i > 0 {
			b.WriteByte('\t')
		}
		b.WriteString(text(c))
	}
	b.WriteByte('\n')
}

func typeColumns() []column {
	return []column{
		{"name", func(r row) string { return r.Name }},
		{"vcpus", func(r row) string { return count(r.VCPUs) }},
		{"cores", func(r row) string { return count(r.cores) }},
		{"memory", func(r row) string { return count(int(math.Round(r.MemoryGiB * 1024))) }},
		{"arch", func(r row) string { return strings.Join(r.Arch, ",") }},
		{"cpu", func(r row) string { return r.manufacturer }},
		{"ghz", func(r row) string { return decimal(r.ghz) }},
		{"hypervisor", func(r row) string { return r.hypervisor }},
		{"flags", func(r row) string { return r.flags }},
		{"usage", func(r row) string { return strings.Join(r.usage, ",") }},
		{"net", func(r row) string { return r.NetworkPerformance }},
		{"cards", cardList},
		{"card", func(r row) string { return count(r.defaultCard) }},
		{"ipv4", func(r row) string { return count(r.ipv4PerENI) }},
		{"ipv6", func(r row) string { return count(r.ipv6) }},
		{"ena", func(r row) string { return r.ena }},
		{"efa", func(r row) string { return count(r.efa) }},
		{"gpu", func(r row) string { return r.gpu }},
		{"inference", func(r row) string { return r.inference }},
		{"neuron", func(r row) string { return r.neuron }},
		{"fpga", func(r row) string { return r.fpga }},
		{"disks", func(r row) string { return r.disks }},
		{"ebs", func(r row) string { return r.ebsKind }},
		{"ebsmbps", func(r row) string { return count(r.EBSMaxMbps) }},
	}
}

func priceColumns(region string, zones []string) []column {
	return []column{
		{region + " od", func(r row) string { return decimal(float64(r.Pricing[region].Linux.OnDemand)) }},
		{region + " spot", func(r row) string { return decimal(float64(r.Pricing[region].Linux.Spot)) }},
		{region + " zones", func(r row) string {
			var mask uint64
			for _, id := range r.ZoneIDs[region] {
				mask |= 1 << slices.Index(zones, id)
			}
			if mask == 0 {
				return ""
			}
			return strconv.FormatUint(mask, 16)
		}},
	}
}

// zonesOf returns the IDs of each region's zones, sorted.
func zonesOf(list []instance) map[string][]string {
	zones := map[string][]string{}
	for _, region := range regions {
		ids := map[string]bool{}
		for _, in := range list {
			for _, id := range in.ZoneIDs[region] {
				ids[id] = true
			}
		}
		zones[region] = slices.Sorted(maps.Keys(ids))
	}
	return zones
}

func cardList(r row) string {
	entries := make([]string, len(r.cards))
	for i, c := range r.cards {
		entries[i] = fmt.Sprintf("%d/%d", c.index, c.enis)
	}
	return strings.Join(entries, ",")
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func decimal(f float64) string {
	if f == 0 {
		return ""
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
