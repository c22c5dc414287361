package dynamicresources

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

const (
	// capacityMemory is the capacity that drivers of GPUs publish for a device's memory.
	capacityMemory resourcev1.QualifiedName = "memory"
	// memoryTolerance is the share of the expected memory that a device may lack: how much a GPU's driver reports can differ
	// from the table of devices. The table's sizes 81152 and 81920 MiB are 0.9 % apart, 23028 and 23034 MiB less; all others
	// are at least 6 % apart.
	memoryTolerance = 0.02
)

// OwnDevices are the slices of devices that come with nodes, by node: those of complete pools, in their highest
// generation, by driver and pool.
func OwnDevices(published []*resourcev1.ResourceSlice) map[string][]resourcev1.ResourceSliceSpec {
	type nodePool struct {
		node string
		poolID
	}
	pools := map[nodePool][]*resourcev1.ResourceSlice{}
	for _, s := range published {
		if s.Spec.NodeName == nil || *s.Spec.NodeName == "" {
			continue
		}
		id := nodePool{*s.Spec.NodeName, poolID{s.Spec.Driver, s.Spec.Pool.Name}}
		if known := pools[id]; len(known) > 0 && known[0].Spec.Pool.Generation != s.Spec.Pool.Generation {
			if known[0].Spec.Pool.Generation > s.Spec.Pool.Generation {
				continue
			}
			pools[id] = nil
		}
		pools[id] = append(pools[id], s)
	}
	out := map[string][]resourcev1.ResourceSliceSpec{}
	byName := func(a, b nodePool) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.driver, b.driver), cmp.Compare(a.pool, b.pool))
	}
	for _, id := range slices.SortedFunc(maps.Keys(pools), byName) {
		list := pools[id]
		if int64(len(list)) != list[0].Spec.Pool.ResourceSliceCount {
			continue
		}
		slices.SortFunc(list, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
		for _, s := range list {
			out[id.node] = append(out[id.node], s.Spec)
		}
	}
	return out
}

// Learned are the slices that another node of the same kind will publish. Attributes that name one thing are left out,
// and so are devices with taints: the taints are about these devices.
func Learned(own []resourcev1.ResourceSliceSpec) []resourcev1.ResourceSliceSpec {
	out := slices.Clone(own)
	for i := range out {
		var devices []resourcev1.Device
		for _, d := range out[i].Devices {
			if len(d.Taints) > 0 {
				continue
			}
			d.Attributes = maps.Clone(d.Attributes)
			maps.DeleteFunc(d.Attributes, func(_ resourcev1.QualifiedName, a resourcev1.DeviceAttribute) bool {
				return a.StringValue != nil && namesOneThing(*a.StringValue)
			})
			devices = append(devices, d)
		}
		out[i].Devices = devices
	}
	return out
}

// uuid is a UUID, or text that contains one, such as a GPU's.
var uuid = regexp.MustCompile(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// namesOneThing reports whether a value is a UUID, a hardware address or an IP address: no other node has it.
func namesOneThing(value string) bool {
	if _, err := net.ParseMAC(value); err == nil {
		return true
	}
	if _, err := netip.ParseAddr(value); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(value)
	return err == nil || uuid.MatchString(value)
}

// Missing are the expected devices of these drivers that a node has not published, in words: plans count on them. A
// device may have more attributes and capacity than expected, and a node more devices.
func Missing(expected, own []resourcev1.ResourceSliceSpec, drivers []string) (out []string) {
	for _, e := range expected {
		if !slices.Contains(drivers, e.Driver) {
			continue
		}
		var free []resourcev1.Device
		for _, s := range own {
			if s.Driver == e.Driver {
				free = append(free, s.Devices...)
			}
		}
		if text := missingOf(e, free); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// missingOf describes the first expected device of a driver that is not published, and how many there are.
func missingOf(expected resourcev1.ResourceSliceSpec, published []resourcev1.Device) string {
	var missing []resourcev1.Device
	free := slices.Clone(published)
	for _, d := range expected.Devices {
		i := slices.IndexFunc(free, func(p resourcev1.Device) bool { return difference(d, p) == "" })
		if i < 0 {
			missing = append(missing, d)
			continue
		}
		free = slices.Delete(free, i, i+1)
	}
	if len(missing) == 0 {
		return ""
	}
	reason := "there are fewer devices"
	if i := slices.IndexFunc(free, func(p resourcev1.Device) bool { return p.Name == missing[0].Name }); i >= 0 {
		reason = difference(missing[0], free[i])
	} else if len(free) > 0 {
		reason = difference(missing[0], free[0])
	}
	return fmt.Sprintf("expected %d devices of DRA driver %s, but %d of them were not published: %s: %s",
		len(expected.Devices), expected.Driver, len(missing), missing[0].Name, reason)
}

// difference describes the first property in which a published device differs from the expected one; empty if none.
func difference(expected, published resourcev1.Device) string {
	for _, name := range slices.Sorted(maps.Keys(expected.Attributes)) {
		want := valueOf(expected.Attributes[name])
		got, has := published.Attributes[name]
		switch {
		case !has:
			return fmt.Sprintf("it has no attribute %s", name)
		case want != catalog.UnknownValue && want != valueOf(got):
			return fmt.Sprintf("attribute %s is %s instead of %s", name, valueOf(got), want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(expected.Capacity)) {
		want, got := expected.Capacity[name], published.Capacity[name]
		if lacks(name, want.Value, got.Value) {
			return fmt.Sprintf("capacity %s is %s instead of %s", name, got.Value.String(), want.Value.String())
		}
	}
	sharedBy := func(d resourcev1.Device) bool {
		return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	}
	if sharedBy(expected) && !sharedBy(published) {
		return "the driver does not let several claims share it"
	}
	if sharedBy(published) && !sharedBy(expected) {
		return "the driver lets several claims share it"
	}
	return ""
}

// lacks reports whether a device has less of a capacity than expected. Of memory, it may have a little less.
func lacks(name resourcev1.QualifiedName, want, got resource.Quantity) bool {
	if name == capacityMemory {
		return got.AsApproximateFloat64() < want.AsApproximateFloat64()*(1-memoryTolerance)
	}
	return got.Cmp(want) < 0
}

// valueOf is the value of an attribute as text.
func valueOf(a resourcev1.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return *a.StringValue
	case a.VersionValue != nil:
		return *a.VersionValue
	case a.IntValue != nil:
		return fmt.Sprint(*a.IntValue)
	case a.BoolValue != nil:
		return fmt.Sprint(*a.BoolValue)
	}
	return strings.TrimSpace(a.String())
}
