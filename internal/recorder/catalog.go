package recorder

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// number is a float64 of a recording.
type number = quantity.Number

// typeRecord is a catalog.InstanceType as plain data.
type typeRecord struct {
	Name             string                         `json:"name"`
	Requirements     []requirement.Record           `json:"requirements"`
	Offerings        []offeringRecord               `json:"offerings"`
	Capacity         corev1.ResourceList            `json:"capacity,omitempty"`
	Allocatable      corev1.ResourceList            `json:"allocatable,omitempty"`
	DeviceSlices     []resourcev1.ResourceSliceSpec `json:"deviceSlices,omitempty"`
	VolumeLimits     map[string]int                 `json:"volumeLimits,omitempty"`
	DRAResources     []corev1.ResourceName          `json:"draResources,omitempty"`
	LocalStorage     int64                          `json:"localStorage,omitempty"`
	CapacityOverlaid bool                           `json:"capacityOverlaid,omitempty"`
}

type offeringRecord struct {
	Zone          string                    `json:"zone"`
	CapacityType  string                    `json:"capacityType"`
	Requirements  []requirement.Record      `json:"requirements"`
	Price         number                    `json:"price"`
	PriceOverlaid bool                      `json:"priceOverlaid,omitempty"`
	PriceDerived  bool                      `json:"priceDerived,omitempty"`
	Available     bool                      `json:"available,omitempty"`
	Message       string                    `json:"message,omitempty"`
	Reason        catalog.UnavailableReason `json:"reason,omitempty"`
	ReservationID string                    `json:"reservationID,omitempty"`
	Remaining     int                       `json:"remaining,omitempty"`
	Capacity      corev1.ResourceList       `json:"capacity,omitempty"`
	Allocatable   corev1.ResourceList       `json:"allocatable,omitempty"`
}

func recordType(t *catalog.InstanceType) typeRecord {
	out := typeRecord{
		Name: t.Name, Requirements: t.Requirements.Records(), Capacity: t.Capacity, Allocatable: t.Allocatable,
		DeviceSlices: t.DeviceSlices, VolumeLimits: t.VolumeLimits, LocalStorage: t.LocalStorage,
		DRAResources: t.DRAResources, CapacityOverlaid: t.CapacityOverlaid,
	}
	for i := range t.Offerings {
		o := &t.Offerings[i]
		out.Offerings = append(out.Offerings, offeringRecord{
			Zone: o.Zone, CapacityType: o.CapacityType, Requirements: o.Requirements.Records(), Price: number(o.Price),
			PriceOverlaid: o.PriceOverlaid, PriceDerived: o.PriceDerived, Available: o.Available, Message: o.UnavailableMessage,
			Reason: o.UnavailableReason, ReservationID: o.ReservationID, Remaining: o.Remaining, Capacity: o.Capacity,
			Allocatable: o.Allocatable,
		})
	}
	return out
}

func (d *typeRecord) instanceType() *catalog.InstanceType {
	out := &catalog.InstanceType{
		Name: d.Name, Requirements: requirement.FromRecords(d.Requirements), Capacity: d.Capacity, Allocatable: d.Allocatable,
		DeviceSlices: d.DeviceSlices, VolumeLimits: d.VolumeLimits, LocalStorage: d.LocalStorage,
		DRAResources: d.DRAResources, CapacityOverlaid: d.CapacityOverlaid,
	}
	for i := range d.Offerings {
		o := &d.Offerings[i]
		out.Offerings = append(out.Offerings, catalog.Offering{
			Zone: o.Zone, CapacityType: o.CapacityType, Requirements: requirement.FromRecords(o.Requirements), Price: float64(o.Price),
			PriceOverlaid: o.PriceOverlaid, PriceDerived: o.PriceDerived, Available: o.Available, UnavailableMessage: o.Message,
			UnavailableReason: o.Reason, ReservationID: o.ReservationID, Remaining: o.Remaining, Capacity: o.Capacity,
			Allocatable: o.Allocatable,
		})
	}
	return out
}

// hashOf identifies content.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:12])
}

// encodeType returns the JSON of a type, and its hash.
func encodeType(t *catalog.InstanceType) (data json.RawMessage, hash string, err error) {
	data, err = json.Marshal(recordType(t))
	return data, hashOf(data), err
}
