package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

//go:embed data/ec2-instance-types.json.gz
var typesFile []byte

//go:embed data/ec2-offerings.json.gz
var offeringsFile []byte

// facts are what EC2 reports of its types.
type facts struct {
	types []instanceType // by name
	// offered are the zone IDs that offer a type, by region, type.
	offered map[string]map[string][]string
	// zones are the zone IDs of a region, sorted.
	zones map[string][]string
}

// instanceType is an item of DescribeInstanceTypes, as far as the catalog keeps it.
type instanceType struct {
	Name                          string `json:"-"`
	BareMetal                     bool
	BurstablePerformanceSupported bool
	CurrentGeneration             bool
	Hypervisor                    string
	NitroEnclavesSupport          string
	SupportedUsageClasses         []string
	SupportedVirtualizationTypes  []string
	MemoryInfo                    memory
	VCpuInfo                      struct{ DefaultVCpus, DefaultCores int }
	PlacementGroupInfo            struct{ SupportedStrategies []string }
	ProcessorInfo                 struct {
		Manufacturer             string
		SupportedArchitectures   []string
		SupportedFeatures        []string
		SustainedClockSpeedInGhz float64
	}
	NetworkInfo struct {
		DefaultNetworkCardIndex      int
		EfaInfo                      struct{ MaximumEfaInterfaces int }
		EnaSupport                   string
		EncryptionInTransitSupported bool
		Ipv4AddressesPerInterface    int
		Ipv6AddressesPerInterface    int
		NetworkPerformance           string
		NetworkCards                 []networkCard
	}
	EbsInfo struct {
		AttachmentLimitType   string
		EbsOptimizedInfo      struct{ MaximumBandwidthInMbps int }
		EbsOptimizedSupport   string
		MaximumEbsAttachments int
	}
	InstanceStorageInfo struct {
		Disks []struct {
			Count, SizeInGB int
			Type            string
		}
		NvmeSupport string
	}
	GpuInfo                  struct{ Gpus []device }
	FpgaInfo                 struct{ Fpgas []device }
	NeuronInfo               struct{ NeuronDevices []device }
	InferenceAcceleratorInfo struct{ Accelerators []device }
}

type memory struct{ SizeInMiB int64 }

type networkCard struct{ NetworkCardIndex, MaximumNetworkInterfaces int }

// device is a GPU or another accelerator.
type device struct {
	Name, Manufacturer string
	Count              int
	LogicalGpuCount    int
	CoreInfo           struct{ Count int }
	MemoryInfo         memory
}

func readFacts() (facts, error) {
	types := map[string]*instanceType{}
	if err := decode(typesFile, &types); err != nil {
		return facts{}, fmt.Errorf("instance types: %w", err)
	}
	offerings := map[string]map[string][]string{} // region, zone ID, types
	if err := decode(offeringsFile, &offerings); err != nil {
		return facts{}, fmt.Errorf("offerings: %w", err)
	}
	f := facts{offered: map[string]map[string][]string{}, zones: map[string][]string{}}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		t := types[name]
		t.Name = name
		if len(t.InstanceStorageInfo.Disks) > 1 || len(t.NetworkInfo.NetworkCards) == 0 {
			return facts{}, fmt.Errorf("%s: %+v", name, t)
		}
		f.types = append(f.types, *t)
	}
	for region, zones := range offerings {
		f.offered[region] = map[string][]string{}
		f.zones[region] = slices.Sorted(maps.Keys(zones))
		for _, zone := range f.zones[region] {
			for _, name := range zones[zone] {
				if types[name] == nil {
					return facts{}, fmt.Errorf("%s offers %s, which nothing describes", zone, name)
				}
				f.offered[region][name] = append(f.offered[region][name], zone)
			}
		}
	}
	return f, nil
}

func (f facts) names() []string {
	names := make([]string, len(f.types))
	for i, t := range f.types {
		names[i] = t.Name
	}
	return names
}

func decode(file []byte, into any) error {
	z, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	return json.NewDecoder(z).Decode(into)
}
