package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// derivedMark follows a number that no source has.
const derivedMark = "~"

// column is one field of a line: its name in the header, its text for a type ("" = zero value).
type column struct {
	name string
	text func(instanceType) string
}

// encodeTypes writes the file of types that the package offline documents.
func encodeTypes(known facts, fees map[string]fee) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "dovetail-ec2 2")
	fmt.Fprintln(&b, "source moto, DescribeInstanceTypes and DescribeInstanceTypeOfferings of August 2026")
	for _, m := range []module{priceTables, priceList} {
		fmt.Fprintln(&b, "source", m.path, m.version)
	}
	columns := append(typeColumns(), column{"windows", func(t instanceType) string {
		f, ok := fees[t.Name]
		if !ok {
			return ""
		}
		return number(quote{f.amount, f.derived})
	}})
	line(&b, columns, func(c column) string { return c.name })
	for _, t := range known.types {
		line(&b, columns, func(c column) string { return c.text(t) })
	}
	return b.Bytes()
}

func line(b *bytes.Buffer, columns []column, text func(column) string) {
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
		{"name", func(t instanceType) string { return t.Name }},
		{"vcpus", func(t instanceType) string { return count(t.VCpuInfo.DefaultVCpus) }},
		{"cores", func(t instanceType) string { return count(t.VCpuInfo.DefaultCores) }},
		{"memory", func(t instanceType) string { return count(int(t.MemoryInfo.SizeInMiB)) }},
		{"arch", func(t instanceType) string { return strings.Join(t.ProcessorInfo.SupportedArchitectures, ",") }},
		{"cpu", func(t instanceType) string { return t.ProcessorInfo.Manufacturer }},
		{"ghz", func(t instanceType) string { return decimal(t.ProcessorInfo.SustainedClockSpeedInGhz) }},
		{"features", func(t instanceType) string { return strings.Join(t.ProcessorInfo.SupportedFeatures, ",") }},
		{"hypervisor", func(t instanceType) string { return t.Hypervisor }},
		{"virt", func(t instanceType) string { return strings.Join(t.SupportedVirtualizationTypes, ",") }},
		{"flags", flags},
		{"usage", usage},
		{"placement", func(t instanceType) string { return strings.Join(t.PlacementGroupInfo.SupportedStrategies, ",") }},
		{"net", func(t instanceType) string { return t.NetworkInfo.NetworkPerformance }},
		{"cards", cards},
		{"card", func(t instanceType) string { return count(t.NetworkInfo.DefaultNetworkCardIndex) }},
		{"ipv4", func(t instanceType) string { return count(t.NetworkInfo.Ipv4AddressesPerInterface) }},
		{"ipv6", func(t instanceType) string { return count(t.NetworkInfo.Ipv6AddressesPerInterface) }},
		{"ena", func(t instanceType) string { return t.NetworkInfo.EnaSupport }},
		{"efa", func(t instanceType) string { return count(t.NetworkInfo.EfaInfo.MaximumEfaInterfaces) }},
		{"gpu", func(t instanceType) string {
			return entries(t.GpuInfo.Gpus, func(d device) string {
				return fmt.Sprintf("%s/%s/%d/%d/%d", d.Name, d.Manufacturer, d.Count, d.LogicalGpuCount, d.MemoryInfo.SizeInMiB)
			})
		}},
		{"inference", func(t instanceType) string { return entries(t.InferenceAcceleratorInfo.Accelerators, accelerator) }},
		{"neuron", func(t instanceType) string { return entries(t.NeuronInfo.NeuronDevices, accelerator) }},
		{"fpga", func(t instanceType) string { return entries(t.FpgaInfo.Fpgas, accelerator) }},
		{"disks", disks},
		{"ebs", func(t instanceType) string { return t.EbsInfo.EbsOptimizedSupport }},
		{"ebsmbps", func(t instanceType) string { return count(t.EbsInfo.EbsOptimizedInfo.MaximumBandwidthInMbps) }},
		{"attach", func(t instanceType) string { return count(t.EbsInfo.MaximumEbsAttachments) }},
		{"attachkind", func(t instanceType) string { return t.EbsInfo.AttachmentLimitType }},
	}
}

func flags(t instanceType) string {
	var b strings.Builder
	for _, f := range []struct {
		letter byte
		set    bool
	}{
		{'m', t.BareMetal},
		{'c', t.CurrentGeneration},
		{'b', t.BurstablePerformanceSupported},
		{'e', t.NitroEnclavesSupport == "supported"},
		{'t', t.NetworkInfo.EncryptionInTransitSupported},
	} {
		if f.set {
			b.WriteByte(f.letter)
		}
	}
	return b.String()
}

// usage are the usage classes in the order in which EC2 lists them most often.
func usage(t instanceType) string {
	var classes []string
	for _, class := range []string{"on-demand", "spot", "capacity-block"} {
		if slices.Contains(t.SupportedUsageClasses, class) {
			classes = append(classes, class)
		}
	}
	return strings.Join(classes, ",")
}

func cards(t instanceType) string {
	return entries(t.NetworkInfo.NetworkCards, func(c networkCard) string {
		return fmt.Sprintf("%d/%d", c.NetworkCardIndex, c.MaximumNetworkInterfaces)
	})
}

func accelerator(d device) string {
	manufacturer := d.Manufacturer
	if manufacturer == "" {
		manufacturer = "AWS" // EC2 leaves out the manufacturer of Neuron devices
	}
	return fmt.Sprintf("%s/%s/%d/%d/%d", d.Name, manufacturer, d.Count, d.CoreInfo.Count, d.MemoryInfo.SizeInMiB)
}

func disks(t instanceType) string {
	s := t.InstanceStorageInfo
	if len(s.Disks) == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d/%s/%s", s.Disks[0].Count, s.Disks[0].SizeInGB, s.Disks[0].Type, s.NvmeSupport)
}

func entries[T any](list []T, text func(T) string) string {
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = text(e)
	}
	return strings.Join(texts, ",")
}

// encode writes the file of a region that the package offline documents.
func (m market) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "dovetail-ec2-prices 1")
	fmt.Fprintln(&b, "region", m.name, m.currency, decimal(m.dollar))
	fmt.Fprintln(&b, "month", m.month)
	if m.note != "" {
		fmt.Fprintln(&b, "note", m.note)
	}
	fmt.Fprintln(&b, "ratio", strconv.FormatFloat(m.onDemandRatio, 'f', -1, 64), strconv.FormatFloat(m.spotRatio, 'f', -1, 64),
		strconv.FormatFloat(m.spotShare, 'f', -1, 64))
	fmt.Fprintln(&b, "zones", strings.Join(m.zones, " "))
	for _, name := range m.names {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", name, number(m.onDemand[name]), number(m.spot[name]), m.mask(name))
	}
	return b.Bytes()
}

// mask has a bit for each zone that offers the type.
func (m market) mask(name string) string {
	var mask uint64
	for _, id := range m.offered[name] {
		mask |= 1 << slices.Index(m.zones, id)
	}
	if mask == 0 {
		return ""
	}
	return strconv.FormatUint(mask, 16)
}

func number(q quote) string {
	text := decimal(q.price)
	if q.derived {
		text += derivedMark
	}
	return text
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
