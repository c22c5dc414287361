package v1

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// AnnotationExpiration on a NodePool is an Expiration as JSON: how its Nodes go as expireAfter comes near. Without it they are deleted when
// expireAfter has passed, whatever budgets allow.
const AnnotationExpiration = "dovetail.sh/expiration"

// DisruptionExpired is the reason of a Node that is replaced before its expireAfter has passed. No disruption budget has it: a NodePool
// states with AnnotationExpiration which budgets hold.
const DisruptionExpired DisruptionReason = "Expired"

// The values of Expiration.Mode.
const (
	// ExpirationForceful deletes Nodes when expireAfter has passed, as without the annotation.
	ExpirationForceful = "Forceful"
	// ExpirationGraceful replaces Nodes within disruption budgets before expireAfter has passed, and deletes the rest.
	ExpirationGraceful = "Graceful"
)

// Conditions of NodePools with the annotation.
const (
	// ConditionExpirationBehind is True while budgets will not have replaced some Nodes by their deadline, and Unknown while the annotation
	// cannot be read.
	ConditionExpirationBehind = "ExpirationBehind"
	// ConditionExpirationUnbounded is True while Nodes may drain without end after their deadline.
	ConditionExpirationUnbounded = "ExpirationUnbounded"
)

const (
	// defaultLeadDivisor and leastLead are the lead without one: a fifth of expireAfter, six days of the default of 30, and at least an hour,
	// in which a budget of one replaces some ten Nodes.
	defaultLeadDivisor, leastLead = 5, time.Hour
	// defaultJitter spreads the Nodes of a burst over a tenth of expireAfter, half of the default lead.
	defaultJitter = 0.1
)

// Expiration describes how the Nodes of a NodePool go as their expireAfter comes near.
type Expiration struct {
	Mode string
	// Lead is how long before expireAfter has passed the first Nodes are replaced; 0 for a fifth of expireAfter. Grace is how long after it
	// the Nodes that are left are deleted.
	Lead, Grace time.Duration
	// Jitter is the share of expireAfter, 0 to 1, over which Nodes of one age are spread.
	Jitter float64
	// BudgetReason is the reason of the disruption budgets that hold.
	BudgetReason DisruptionReason
}

// expirationText is the annotation as it is written.
type expirationText struct {
	Mode         *string           `json:"mode"`
	Lead         *string           `json:"lead"`
	Grace        *string           `json:"grace"`
	Jitter       *string           `json:"jitter"`
	BudgetReason *DisruptionReason `json:"budgetReason"`
}

// Expiration parses the annotation AnnotationExpiration; nil without it. An error names the field.
func (in *NodePool) Expiration() (*Expiration, error) {
	text, ok := in.Annotations[AnnotationExpiration]
	if !ok {
		return nil, nil
	}
	out, err := parseExpiration(text, in.Spec.Template.Spec.ExpireAfter.Duration)
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AnnotationExpiration, err)
	}
	return out, nil
}

// Graceful is the Expiration of a NodePool that replaces Nodes before their expireAfter has passed; nil for any other, also for one with an
// annotation that cannot be read.
func (in *NodePool) Graceful() *Expiration {
	if e, err := in.Expiration(); err == nil && e != nil && e.Mode == ExpirationGraceful {
		return e
	}
	return nil
}

// parseExpiration parses the annotation. expireAfter is that of new Nodes, nil if they never expire.
func parseExpiration(text string, expireAfter *time.Duration) (*Expiration, error) {
	var t expirationText
	d := json.NewDecoder(bytes.NewBufferString(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return nil, fmt.Errorf("it is not JSON such as {\"mode\":\"%s\"}: %w", ExpirationGraceful, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("it has more than one JSON object")
	}
	out := &Expiration{Jitter: defaultJitter, BudgetReason: DisruptionDrifted}
	if t.Mode == nil || *t.Mode != ExpirationForceful && *t.Mode != ExpirationGraceful {
		return nil, fmt.Errorf("mode %s is neither %s nor %s", quoted(t.Mode), ExpirationForceful, ExpirationGraceful)
	}
	out.Mode = *t.Mode
	var err error
	if t.Lead != nil {
		if out.Lead, err = time.ParseDuration(*t.Lead); err != nil || out.Lead <= 0 {
			return nil, fmt.Errorf("lead %q is not a duration above 0, such as 48h", *t.Lead)
		}
		if expireAfter != nil && out.Lead >= *expireAfter {
			return nil, fmt.Errorf("lead %s is not shorter than expireAfter, %s", *t.Lead, expireAfter)
		}
	}
	if t.Grace != nil {
		if out.Grace, err = time.ParseDuration(*t.Grace); err != nil || out.Grace < 0 {
			return nil, fmt.Errorf("grace %q is not a duration, such as 0s or 12h", *t.Grace)
		}
	}
	if t.Jitter != nil {
		number, isShare := strings.CutSuffix(*t.Jitter, "%")
		percent, err := strconv.ParseFloat(number, 64)
		if err != nil || !isShare || !(percent >= 0 && percent <= 100) { // NaN is not within
			return nil, fmt.Errorf("jitter %q is not a share of expireAfter, 0%% to 100%%", *t.Jitter)
		}
		out.Jitter = percent / 100
	}
	if t.BudgetReason != nil {
		if !slices.Contains(DisruptionReasons(), *t.BudgetReason) {
			return nil, fmt.Errorf("budgetReason %q is none of %v", *t.BudgetReason, DisruptionReasons())
		}
		out.BudgetReason = *t.BudgetReason
	}
	return out, nil
}

func quoted(text *string) string {
	if text == nil {
		return `""`
	}
	return strconv.Quote(*text)
}

// Due is from when on a Node is replaced within budgets. It is the same at each call: Nodes of one age are spread by the UIDs of their
// NodeClaims, over the first half of the lead at most.
func (e *Expiration) Due(claim types.UID, created time.Time, expireAfter time.Duration) time.Time {
	lead := e.leadOf(expireAfter)
	jitter := time.Duration(fractionOf(claim) * e.Jitter * float64(expireAfter))
	return created.Add(expireAfter - lead + min(jitter, lead/2))
}

// Deadline is from when on a Node is deleted, whatever budgets allow.
func (e *Expiration) Deadline(created time.Time, expireAfter time.Duration) time.Time {
	return created.Add(expireAfter + e.Grace)
}

// leadOf is the lead of a Node, which is shorter than its expireAfter: Nodes keep that of their launch.
func (e *Expiration) leadOf(expireAfter time.Duration) time.Duration {
	if e.Lead > 0 && e.Lead < expireAfter {
		return e.Lead
	}
	lead := max(expireAfter/defaultLeadDivisor, leastLead)
	if lead >= expireAfter {
		return expireAfter / 2
	}
	return lead
}

// fractionOf maps a UID to [0, 1): the first 8 bytes of its SHA-256.
func fractionOf(claim types.UID) float64 {
	sum := sha256.Sum256([]byte(claim))
	const bits = 53 // of the mantissa: a division of all 64 rounds up to 1
	return float64(binary.BigEndian.Uint64(sum[:8])>>(64-bits)) / (1 << bits)
}
