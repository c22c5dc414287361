// Package catalogfile reads instance types from a file, for planning with instance types of any origin, without calls
// of a cloud API.
package catalogfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// defaultPodsPerNode is the kubelet's default of maxPods.
const defaultPodsPerNode = 110

// file is the format. Quantities are those of Kubernetes, prices are in $/h.
type file struct {
	Name  string              `json:"name"`
	Zones []string            `json:"zones"`
	Types []instanceTypeEntry `json:"types"`
}

// instanceTypeEntry is an instance type of the file.
type instanceTypeEntry struct {
	Name        string                     `json:"name"`
	Arch        string                     `json:"arch"`
	OS          []string                   `json:"os"`
	Capacity    map[string]json.RawMessage `json:"capacity"`
	Allocatable map[string]json.RawMessage `json:"allocatable"`
	Labels      map[string]string          `json:"labels"`
	Offerings   []offering                 `json:"offerings"`
}

type offering struct {
	Zone         string   `json:"zone"`
	CapacityType string   `json:"capacityType"`
	Price        *float64 `json:"price"`
	Available    *bool    `json:"available"`
	// Reservation is the capacity reservation that the offering uses, Remaining how many instances fit in it.
	Reservation string `json:"reservation"`
	Remaining   int    `json:"remaining"`
}

// Decode reads a catalog and returns its types, sorted by name. An error names the invalid field. Allocatable is all
// of a type's capacity unless the file gives a capacity as well; an offering is available unless the file makes it
// unavailable.
func Decode(data []byte, labels requirement.Labels) ([]*catalog.InstanceType, error) {
	var f file
	if err := decodeStrict(data, &f); err != nil {
		return nil, located(data, err)
	}
	for i, zone := range f.Zones {
		switch {
		case zone == "":
			return nil, fmt.Errorf("zones[%d]: is empty", i)
		case slices.Contains(f.Zones[:i], zone):
			return nil, fmt.Errorf("zones[%d]: %q is listed twice", i, zone)
		}
	}
	if len(f.Types) == 0 {
		return nil, errors.New("types: is empty")
	}
	seen, sets := map[string]bool{}, offeringSets{}
	out := make([]*catalog.InstanceType, 0, len(f.Types))
	for i := range f.Types {
		m := &f.Types[i]
		it, err := m.instanceType(f.Zones, labels, sets)
		if err == nil && seen[m.Name] {
			err = errors.New("name: is listed twice")
		}
		if err != nil {
			return nil, fmt.Errorf("types[%d]%s: %w", i, inBrackets(m.Name), err)
		}
		seen[m.Name] = true
		out = append(out, it)
	}
	slices.SortFunc(out, func(a, b *catalog.InstanceType) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func (m *instanceTypeEntry) instanceType(zones []string, labels requirement.Labels, sets offeringSets) (*catalog.InstanceType, error) {
	if m.Name == "" {
		return nil, errors.New("name: is missing")
	}
	if m.Arch != "" && !slices.Contains(architectures(), m.Arch) {
		return nil, fmt.Errorf("arch: %q must be one of %q", m.Arch, architectures())
	}
	for i, name := range m.OS {
		if !slices.Contains(systems(), name) {
			return nil, fmt.Errorf("os[%d]: %q must be one of %q", i, name, systems())
		}
	}
	allocatable, err := resources("allocatable", m.Allocatable)
	if err != nil {
		return nil, err
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, ok := allocatable[name]; !ok {
			return nil, fmt.Errorf("allocatable: has no %s", name)
		}
	}
	if _, ok := allocatable[corev1.ResourcePods]; !ok {
		allocatable[corev1.ResourcePods] = *resource.NewQuantity(defaultPodsPerNode, resource.DecimalSI)
	}
	capacity, err := resources("capacity", m.Capacity)
	if err != nil {
		return nil, err
	}
	for name, q := range allocatable {
		total, ok := capacity[name]
		if !ok {
			capacity[name] = q
		} else if total.Cmp(q) < 0 {
			return nil, fmt.Errorf("allocatable: %s %s is more than the capacity of %s", q.String(), name, total.String())
		}
	}
	it := &catalog.InstanceType{Name: m.Name, Capacity: capacity, Allocatable: allocatable}
	if it.Offerings, err = m.offerings(zones, labels.ReservationID, sets); err != nil {
		return nil, err
	}
	it.Requirements = m.requirements(it.Offerings, labels)
	return it, nil
}

// offerings returns those of the instance type; reservation is the label that names a node's reservation, if there is one.
func (m *instanceTypeEntry) offerings(zones []string, reservation string, sets offeringSets) ([]catalog.Offering, error) {
	kinds := []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot, karpv1.CapacityTypeReserved}
	out := make([]catalog.Offering, 0, len(m.Offerings))
	for i := range m.Offerings {
		o := &m.Offerings[i]
		switch {
		case o.Zone == "":
			return nil, fmt.Errorf("offerings[%d].zone: is missing", i)
		case len(zones) > 0 && !slices.Contains(zones, o.Zone):
			return nil, fmt.Errorf("offerings[%d].zone: %q is not among the zones of the catalog", i, o.Zone)
		case !slices.Contains(kinds, o.CapacityType):
			return nil, fmt.Errorf("offerings[%d].capacityType: %q must be one of %q", i, o.CapacityType, kinds)
		case o.Reservation != "" && o.CapacityType != karpv1.CapacityTypeReserved:
			return nil, fmt.Errorf("offerings[%d].reservation: the capacity type is %q", i, o.CapacityType)
		case o.Remaining < 0 || o.Remaining > 0 && o.Reservation == "":
			return nil, fmt.Errorf("offerings[%d].remaining: %d of reservation %q", i, o.Remaining, o.Reservation)
		case o.Price == nil:
			return nil, fmt.Errorf("offerings[%d].price: is missing", i)
		case *o.Price < 0:
			return nil, fmt.Errorf("offerings[%d].price: is negative", i)
		case *o.Price == 0 && o.CapacityType != karpv1.CapacityTypeReserved:
			return nil, fmt.Errorf("offerings[%d].price: is 0, which only a reserved offering can cost", i)
		}
		available := (o.Available == nil || *o.Available) && (o.Reservation == "" || o.Remaining > 0)
		out = append(out, catalog.Offering{
			Zone: o.Zone, CapacityType: o.CapacityType, Price: *o.Price, Available: available,
			Requirements:  sets.of(o, reservation),
			ReservationID: o.Reservation, Remaining: o.Remaining,
		})
	}
	return out, nil
}

// offeringSets are the requirements of offerings. Offerings of different types share them: a catalog has few zones.
type offeringSets map[[3]string]requirement.Set

// of returns the requirements of an offering; reservation is the label that names a node's reservation, if there is
// one.
func (s offeringSets) of(o *offering, reservation string) requirement.Set {
	key := [...]string{o.CapacityType, o.Zone, o.Reservation}
	if set, known := s[key]; known {
		return set
	}
	set := requirement.NewSet(
		requirement.In(karpv1.LabelCapacityType, o.CapacityType),
		requirement.In(corev1.LabelTopologyZone, o.Zone),
	)
	switch {
	case reservation == "":
	case o.Reservation == "":
		set = set.With(requirement.DoesNotExist(reservation))
	default:
		set = set.With(requirement.In(reservation, o.Reservation))
	}
	s[key] = set
	return set
}

// requirements are the labels of a node of the type. Zone and capacity type are those of the offerings,
// whatever the file lists among the labels.
func (m *instanceTypeEntry) requirements(offerings []catalog.Offering, labels requirement.Labels) requirement.Set {
	var zones, capacityTypes []string
	for _, o := range offerings {
		zones, capacityTypes = append(zones, o.Zone), append(capacityTypes, o.CapacityType)
	}
	set := labels.FromLabels(m.Labels).
		Replace(requirement.In(corev1.LabelInstanceTypeStable, m.Name)).
		Replace(requirement.In(corev1.LabelTopologyZone, zones...)).
		Replace(requirement.In(karpv1.LabelCapacityType, capacityTypes...))
	if m.Arch != "" {
		set = set.Replace(requirement.In(corev1.LabelArchStable, m.Arch))
	}
	if len(m.OS) > 0 {
		set = set.Replace(requirement.In(corev1.LabelOSStable, m.OS...))
	}
	return set
}

// architectures returns what nodes can be, as their labels spell it.
func architectures() []string { return []string{"amd64", "arm64"} }

// systems returns what nodes can run, as their labels spell it.
func systems() []string { return []string{string(corev1.Linux), string(corev1.Windows)} }

// strict decodes exactly one value. An unknown field is an error: otherwise it would be ignored silently.
func decodeStrict(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("is empty")
	case errors.As(err, &mismatch) && mismatch.Field != "":
		return fmt.Errorf("%s: is a %s, which cannot be %s", mismatch.Field, mismatch.Value, mismatch.Type)
	case errors.As(err, &mismatch):
		return fmt.Errorf("is not an object but %s", mismatch.Value)
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the file continues after the end of the catalog")
	}
	return nil
}

// located adds to an error of decoding the whole file the part of the file that has it.
func located(data []byte, err error) error {
	var f struct {
		Name  string            `json:"name"`
		Zones []string          `json:"zones"`
		Types []json.RawMessage `json:"types"`
	}
	if err := decodeStrict(data, &f); err != nil {
		return err
	}
	for i, text := range f.Types {
		var m struct {
			Name        string                     `json:"name"`
			Arch        string                     `json:"arch"`
			OS          []string                   `json:"os"`
			Capacity    map[string]json.RawMessage `json:"capacity"`
			Allocatable map[string]json.RawMessage `json:"allocatable"`
			Labels      map[string]string          `json:"labels"`
			Offerings   []json.RawMessage          `json:"offerings"`
		}
		if err := decodeStrict(text, &m); err != nil {
			return fmt.Errorf("types[%d]%s: %w", i, nameIn(text), err)
		}
		for j, text := range m.Offerings {
			if err := decodeStrict(text, &offering{}); err != nil {
				return fmt.Errorf("types[%d]%s: offerings[%d]: %w", i, inBrackets(m.Name), j, err)
			}
		}
	}
	return err
}

// nameIn is the name of a type that cannot be decoded, in brackets, if it has one.
func nameIn(text []byte) string {
	var m struct{ Name any }
	_ = json.Unmarshal(text, &m) // the caller has the error
	name, _ := m.Name.(string)
	return inBrackets(name)
}

func inBrackets(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

// resources reads quantities, which may be spelled as numbers.
func resources(field string, quantities map[string]json.RawMessage) (corev1.ResourceList, error) {
	out := make(corev1.ResourceList, len(quantities))
	for _, name := range slices.Sorted(maps.Keys(quantities)) {
		text := strings.Trim(string(quantities[name]), `"`)
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %q is not a quantity", field, name, text)
		}
		if q.Sign() < 0 {
			return nil, fmt.Errorf("%s.%s: is negative", field, name)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}
