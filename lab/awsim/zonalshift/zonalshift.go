// Package zonalshift simulates the zonal shifts of the Application Recovery Controller, as far as a cluster's own tenants see
// them: which zones its traffic is shifted away from. Shifts are begun and ended by whoever runs the account.
package zonalshift

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim/wire"
)

// Config is what Shifts need.
type Config struct {
	// Managed reports whether there is a resource of that ARN whose traffic can be shifted.
	Managed func(arn string) bool
	// Zones are the IDs of the region's zones.
	Zones func() []string
	Now   func() time.Time
}

// Shifts are the zonal shifts of an account and region. They are safe for concurrent use.
type Shifts struct {
	cfg Config

	mu     sync.Mutex
	issued int
	shifts []shift
}

type shift struct {
	id, resource, zone string
	start, end         time.Time
}

// New returns an account in which no traffic is shifted.
func New(cfg Config) *Shifts { return &Shifts{cfg: cfg} }

// Start shifts the traffic of a resource away from a zone, named by its ID, for a while. One shift at a time is allowed.
func (s *Shifts) Start(resource, zone string, life time.Duration) error {
	now := s.cfg.Now()
	switch {
	case !s.cfg.Managed(resource):
		return fmt.Errorf("zonal shift: no resource %s", resource)
	case !slices.Contains(s.cfg.Zones(), zone):
		return fmt.Errorf("zonal shift: no zone has the ID %q", zone)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.active(resource, now)) > 0 {
		return fmt.Errorf("zonal shift: there is one of %s already", resource)
	}
	s.issued++
	sum := sha256.Sum256(fmt.Appendf(nil, "shift %d %s", s.issued, resource))
	id := fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	s.shifts = append(s.shifts, shift{id: id, resource: resource, zone: zone, start: now, end: now.Add(life)})
	return nil
}

// Cancel ends the shifts of a resource.
func (s *Shifts) Cancel(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shifts = slices.DeleteFunc(s.shifts, func(z shift) bool { return z.resource == resource })
}

// active are the shifts of a resource that have not ended. The caller holds the lock.
func (s *Shifts) active(resource string, now time.Time) []shift {
	var out []shift
	for _, z := range s.shifts {
		if z.resource == resource && now.Before(z.end) {
			out = append(out, z)
		}
	}
	return out
}

// Service is the API at the wire.
func (s *Shifts) Service() wire.Service {
	return wire.Service{
		Name: "arc-zonal-shift", Protocol: wire.RESTJSON,
		Routes:   []wire.Route{{Method: http.MethodGet, Path: "/managedresources/{resourceIdentifier}", Action: "GetManagedResource"}},
		Handlers: map[string]wire.Handler{"GetManagedResource": wire.JSON(s.getManagedResource)},
		Needs: func(r *wire.Request) []wire.Need {
			keys := policy.Keys{}
			keys.Put("arc-zonal-shift:ResourceIdentifier", r.Path["resourceIdentifier"])
			return []wire.Need{{Resource: r.Path["resourceIdentifier"], Keys: keys}}
		},
	}
}

type managedResource struct {
	ARN            string             `json:"arn"`
	Name           string             `json:"name"`
	AppliedWeights map[string]float64 `json:"appliedWeights"`
	ZonalShifts    []jsonShift        `json:"zonalShifts"`
	Autoshifts     []struct{}         `json:"autoshifts"`
	Autoshift      string             `json:"zonalAutoshiftStatus"`
}

type jsonShift struct {
	AppliedStatus string  `json:"appliedStatus"`
	AwayFrom      string  `json:"awayFrom"` // ID of a zone
	Comment       string  `json:"comment"`
	ExpiryTime    float64 `json:"expiryTime"` // seconds since 1970
	Resource      string  `json:"resourceIdentifier"`
	StartTime     float64 `json:"startTime"`
	ID            string  `json:"zonalShiftId"`
}

func (s *Shifts) getManagedResource(r *wire.Request, _ *struct{}) (*managedResource, error) {
	arn := r.Path["resourceIdentifier"]
	if !s.cfg.Managed(arn) {
		return nil, wire.Errorf("ResourceNotFoundException", "The resource %s could not be found.", arn).WithStatus(http.StatusNotFound)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &managedResource{ARN: arn, Name: arn, AppliedWeights: map[string]float64{}, ZonalShifts: []jsonShift{}, Autoshifts: []struct{}{}, Autoshift: "DISABLED"}
	for _, zone := range s.cfg.Zones() {
		out.AppliedWeights[zone] = 1
	}
	for _, z := range s.active(arn, s.cfg.Now()) {
		out.AppliedWeights[z.zone] = 0
		out.ZonalShifts = append(out.ZonalShifts, jsonShift{
			AppliedStatus: "APPLIED", AwayFrom: z.zone, ExpiryTime: float64(z.end.UnixMilli()) / 1000, Resource: arn,
			StartTime: float64(z.start.UnixMilli()) / 1000, ID: z.id,
		})
	}
	return out, nil
}
