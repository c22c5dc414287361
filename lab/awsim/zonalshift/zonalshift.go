// Package zonalshift simulates the zonal shifts of the Application Recovery Controller, as far as a cluster's own
// tenants see them: which zones its traffic is shifted away from. Shifts are begun and stopped by anyone who runs the
// account.
package zonalshift

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Config is what Shifts need.
type Config struct {
	// Managed reports whether there is a resource of that ARN with traffic that can be shifted.
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
	kind               kind
	id, resource, zone string
	start, end         time.Time // the zero end is none: an autoshift lasts until AWS stops it
}

// kind is who shifts. Of several at a time, the first of these is applied.
type kind int

const (
	byCustomer kind = iota
	byAWS           // autoshift
	asPractice
)

// New returns an account in which no traffic is shifted.
func New(cfg Config) *Shifts { return &Shifts{cfg: cfg} }

// Start shifts the traffic of a resource away from a zone, named by its ID, for a while. One shift at a time is
// allowed, besides those that AWS begins.
func (s *Shifts) Start(resource, zone string, life time.Duration) error {
	return s.begin(shift{kind: byCustomer, resource: resource, zone: zone}, life)
}

// StartAutoshift has AWS shift the traffic of a resource away from a zone until Cancel. A shift of the customer's takes
// precedence.
func (s *Shifts) StartAutoshift(resource, zone string) error {
	return s.begin(shift{kind: byAWS, resource: resource, zone: zone}, 0)
}

// StartPracticeRun has AWS try for a while whether a resource does without a zone. Any other shift takes precedence.
func (s *Shifts) StartPracticeRun(resource, zone string, life time.Duration) error {
	return s.begin(shift{kind: asPractice, resource: resource, zone: zone}, life)
}

func (s *Shifts) begin(z shift, life time.Duration) error {
	z.start = s.cfg.Now()
	if life > 0 {
		z.end = z.start.Add(life)
	}
	switch {
	case !s.cfg.Managed(z.resource):
		return fmt.Errorf("zonal shift: no resource %s", z.resource)
	case !slices.Contains(s.cfg.Zones(), z.zone):
		return fmt.Errorf("zonal shift: no zone has the ID %q", z.zone)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.active(z.resource, z.start), func(other shift) bool { return other.kind == z.kind }) {
		return fmt.Errorf("zonal shift: there is one of %s already", z.resource)
	}
	s.issued++
	sum := sha256.Sum256(fmt.Appendf(nil, "shift %d %s", s.issued, z.resource))
	z.id = fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
	s.shifts = append(s.shifts, z)
	return nil
}

// Cancel stops the shifts of a resource, no matter who began them.
func (s *Shifts) Cancel(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shifts = slices.DeleteFunc(s.shifts, func(z shift) bool { return z.resource == resource })
}

// active are the shifts of a resource that have not finished, the applied one first. The caller holds the lock.
func (s *Shifts) active(resource string, now time.Time) []shift {
	var out []shift
	for _, z := range s.shifts {
		if z.resource == resource && (z.end.IsZero() || now.Before(z.end)) {
			out = append(out, z)
		}
	}
	slices.SortStableFunc(out, func(a, b shift) int { return cmp.Compare(a.kind, b.kind) })
	return out
}

// Service returns the API handlers of ARC zonal shift.
func (s *Shifts) Service() protocol.Service {
	return protocol.Service{
		Name: "arc-zonal-shift", Protocol: protocol.RESTJSON,
		Routes:   []protocol.Route{{Method: http.MethodGet, Path: "/managedresources/{resourceIdentifier}", Action: "GetManagedResource"}},
		Handlers: map[string]protocol.Handler{"GetManagedResource": protocol.JSON(s.getManagedResource)},
		Permissions: func(r *protocol.Request) []protocol.RequiredPermission {
			keys := policy.Keys{}
			keys.Put("arc-zonal-shift:ResourceIdentifier", r.Path["resourceIdentifier"])
			return []protocol.RequiredPermission{{Resource: r.Path["resourceIdentifier"], Keys: keys}}
		},
	}
}

type managedResource struct {
	ARN            string             `json:"arn"`
	Name           string             `json:"name"`
	AppliedWeights map[string]float64 `json:"appliedWeights"`
	ZonalShifts    []jsonShift        `json:"zonalShifts"`
	Autoshifts     []jsonAutoshift    `json:"autoshifts"`
	Autoshift      string             `json:"zonalAutoshiftStatus"`
}

type jsonAutoshift struct {
	AppliedStatus string  `json:"appliedStatus"`
	AwayFrom      string  `json:"awayFrom"`
	StartTime     float64 `json:"startTime"`
}

type jsonShift struct {
	AppliedStatus string  `json:"appliedStatus"`
	AwayFrom      string  `json:"awayFrom"` // ID of a zone
	Comment       string  `json:"comment"`
	ExpiryTime    float64 `json:"expiryTime"` // seconds since 1970
	Resource      string  `json:"resourceIdentifier"`
	StartTime     float64 `json:"startTime"`
	ID            string  `json:"zonalShiftId"`
	Type          string  `json:"shiftType"`
	Outcome       string  `json:"practiceRunOutcome,omitempty"`
}

func (s *Shifts) getManagedResource(r *protocol.Request, _ *struct{}) (*managedResource, error) {
	arn := r.Path["resourceIdentifier"]
	if !s.cfg.Managed(arn) {
		return nil, protocol.Errorf("ResourceNotFoundException", "The resource %s could not be found.", arn).WithStatus(http.StatusNotFound)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &managedResource{
		ARN:            arn,
		Name:           arn,
		AppliedWeights: map[string]float64{},
		ZonalShifts:    []jsonShift{},
		Autoshifts:     []jsonAutoshift{},
		Autoshift:      "DISABLED",
	}
	for _, zone := range s.cfg.Zones() {
		out.AppliedWeights[zone] = 1
	}
	for n, z := range s.active(arn, s.cfg.Now()) {
		status := "NOT_APPLIED"
		if n == 0 {
			status, out.AppliedWeights[z.zone] = "APPLIED", 0
		}
		if z.kind == byAWS {
			out.Autoshift = "ENABLED"
			out.Autoshifts = append(out.Autoshifts, jsonAutoshift{AppliedStatus: status, AwayFrom: z.zone, StartTime: epoch(z.start)})
			continue
		}
		shown := jsonShift{
			AppliedStatus: status, AwayFrom: z.zone, ExpiryTime: epoch(z.end), Resource: arn, StartTime: epoch(z.start), ID: z.id,
			Type: "ZONAL_SHIFT",
		}
		if z.kind == asPractice {
			out.Autoshift, shown.Type, shown.Outcome = "ENABLED", "PRACTICE_RUN", "PENDING"
		}
		out.ZonalShifts = append(out.ZonalShifts, shown)
	}
	return out, nil
}

func epoch(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
