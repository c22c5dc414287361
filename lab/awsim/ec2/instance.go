package ec2

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// States of an instance.
const (
	Pending      = "pending"
	Running      = "running"
	ShuttingDown = "shutting-down"
	Terminated   = "terminated"
	Stopping     = "stopping"
	Stopped      = "stopped"
)

// Instance is an EC2 instance at one moment.
type Instance struct {
	ID                 string
	Type               string
	State              string
	Zone               string
	ZoneID             string
	VPCID              string
	SubnetID           string
	PrivateIP          string
	PrivateDNSName     string
	ImageID            string
	InstanceProfileARN string
	RoleARN            string // of the profile's role at launch; empty = none
	Lifecycle          string // "", "spot", "capacity-block" or "interruptible-capacity-reservation"
	// CapacityReservationID is the reservation that the instance runs in; empty = none.
	CapacityReservationID string

	Architecture     string // "x86_64", "arm64"
	UserData         []byte // decoded; empty = none
	SecurityGroupIDs []string
	Tags             map[string]string
	LaunchedAt       time.Time
	StateChangedAt   time.Time
	// Reboots is how often the instance was rebooted.
	Reboots int

	VCPUs       int
	MemoryMiB   int64
	GPUs        []GPU
	Neuron      []Accelerator // AWS's own accelerators
	MaxENIs     int           // on the default network card
	EFAs        int           // interfaces of EFA
	IPv4PerENI  int
	LocalDiskGB int64 // instance store, all disks
	RootDiskGiB int   // size of the root volume
}

// Accelerators as the catalog of instance types describes them.
type (
	GPU         = offline.GPU
	Accelerator = offline.Accelerator
)

// clone returns a copy that shares nothing that could be modified.
func (i Instance) clone() Instance {
	i.UserData = slices.Clone(i.UserData)
	i.SecurityGroupIDs = slices.Clone(i.SecurityGroupIDs)
	i.GPUs, i.Neuron = slices.Clone(i.GPUs), slices.Clone(i.Neuron)
	i.Tags = maps.Clone(i.Tags)
	return i
}

// InstanceEvent is a state change of an instance.
type InstanceEvent struct {
	Instance Instance
}

// publicDNSName is the name of a public address; empty without one.
func publicDNSName(region, ip string) string {
	if ip == "" {
		return ""
	}
	host := "ec2-" + strings.ReplaceAll(ip, ".", "-")
	if region == "us-east-1" {
		return host + ".compute-1.amazonaws.com"
	}
	return host + "." + region + ".compute.amazonaws.com"
}

// How instances are named.
const (
	ipName       = "ip-name"
	resourceName = "resource-name"
)

// resourceDNSName is the name by the ID of an instance.
func resourceDNSName(region, id string) string {
	if region == "us-east-1" {
		return id + ".ec2.internal"
	}
	return id + "." + region + ".compute.internal"
}

// privateDNSName is the IP-based name that EC2 gives in a region.
func privateDNSName(region, ip string) string {
	host := "ip-" + strings.ReplaceAll(ip, ".", "-")
	if region == "us-east-1" {
		return host + ".ec2.internal"
	}
	return host + "." + region + ".compute.internal"
}
