package schedule

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// The result of Solve: see package plan.
type (
	Plan         = plan.Plan
	Placement    = plan.Placement
	DeviceUse    = plan.DeviceUse
	Launch       = plan.Launch
	IgnoredTerms = plan.IgnoredTerms
	Rejection    = plan.Rejection
	Stats        = plan.Stats

	// PreferenceCost is what becomes of a preference.
	PreferenceCost = plan.PreferenceCost
)

// A Reason is one cause, as data: see package rejection.
type (
	Reason  = rejection.Reason
	Nearest = rejection.Nearest
	Code    = rejection.Code
)

// The rules that can keep a pod off a node: see package rejection.
const (
	NoPools       = rejection.NoPools
	NotManaged    = rejection.NotManaged
	InvalidPod    = rejection.InvalidPod
	Requirement   = rejection.Requirement
	Taint         = rejection.Taint
	Resources     = rejection.Resources
	Offering      = rejection.Offering
	Limits        = rejection.Limits
	MinValues     = rejection.MinValues
	HostPort      = rejection.HostPort
	Topology      = rejection.Topology
	Volume        = rejection.Volume
	VolumePending = rejection.VolumePending
	Unsupported   = rejection.Unsupported
	VolumeInUse   = rejection.VolumeInUse
	TooComplex    = rejection.TooComplex
	BudgetSpent   = rejection.BudgetSpent
	DeviceClaims  = rejection.DeviceClaims
	Devices       = rejection.Devices
	Reserved      = rejection.Reserved
	PodGroup      = rejection.PodGroup
)
