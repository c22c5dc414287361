package nodereport

import (
	"fmt"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Expiration is how a node goes as its expireAfter comes near, by the annotation of its NodePool.
type Expiration struct {
	// Due is from when on the node is replaced within the budgets for BudgetReason, Deadline from when on it is deleted, whatever they allow.
	// Both are empty if the annotation has a Problem.
	Due          *time.Time `json:"due,omitempty"`
	Deadline     *time.Time `json:"deadline,omitempty"`
	BudgetReason string     `json:"budgetReason,omitempty"`
	// Problem is why the annotation cannot be read.
	Problem string `json:"problem,omitempty"`
}

// expiration is that of the node; nil if its NodePool has no annotation, or one that changes nothing.
func (b *builder) expiration() *Expiration {
	if b.pool == nil || b.n.ExpireAfter <= 0 {
		return nil
	}
	e, err := b.pool.Expiration()
	switch {
	case err != nil:
		return &Expiration{Problem: err.Error()}
	case e == nil || e.Mode != karpv1.ExpirationGraceful:
		return nil
	}
	due, deadline := e.Due(b.n.ClaimUID, b.n.CreatedAt, b.n.ExpireAfter).UTC(), e.Deadline(b.n.CreatedAt, b.n.ExpireAfter).UTC()
	return &Expiration{Due: &due, Deadline: &deadline, BudgetReason: string(e.BudgetReason)}
}

// text is when the node expires, and how it goes.
func (e *Expiration) text(at, now time.Time) string {
	when := "expires at " + report.Time(at, now)
	switch {
	case e == nil:
		return when + ", whatever budgets say"
	case e.Problem != "":
		return fmt.Sprintf("%s, whatever budgets say: %s", when, e.Problem)
	}
	out := fmt.Sprintf("%s: replaced within the budgets for %s from %s on", when, e.BudgetReason, report.Time(*e.Due, now))
	if e.Deadline.Equal(at) {
		return out + ", else deleted then"
	}
	return out + ", else deleted at " + report.Time(*e.Deadline, now)
}

// deadline is when the node is deleted, whatever budgets allow.
func (r *Report) deadline() time.Time {
	if r.Expiration != nil && r.Expiration.Deadline != nil {
		return *r.Expiration.Deadline
	}
	return *r.ExpiresAt
}

// expires is the verdict on a node with an expireAfter that comes near, and whether it is replaced.
func (b *builder) expires(r *Report) (Verdict, bool) {
	because := fmt.Sprintf("its expireAfter of %s passes at %s", report.Duration(b.n.ExpireAfter), report.Time(*r.ExpiresAt, b.now()))
	c := b.candidate(b.n)
	if c == nil || b.incoming[b.n.Name] != nil {
		v := b.stays(r)
		v.Text += ". It should go: " + because
		return v, false
	}
	budget := karpv1.DisruptionReason(r.Expiration.BudgetReason)
	if a := b.Allowance(b.n.Pool, budget); a.Available() == 0 {
		blocker := b.budget(budget, a)
		return Verdict{Stays, blocker.Code, fmt.Sprintf("stays for now: %s. It should go: %s", blocker.Message, because)}, false
	}
	if b.brief && b.limited() { // a simulation for each takes too long
		return Verdict{Goes, string(karpv1.DisruptionExpired), "is replaced in one of the next passes, if its pods fit elsewhere: " + because}, true
	}
	if why := b.irreplaceable(c, budget); why != "" {
		return Verdict{Stays, "NoRoom", fmt.Sprintf("stays: %s. It should go: %s", why, because)}, false
	}
	if v, waits := b.waits(karpv1.DisruptionExpired, true, because); waits {
		return v, false
	}
	return Verdict{Goes, string(karpv1.DisruptionExpired), "is replaced in one of the next passes: " + because}, true
}

// due reports whether the node is to be replaced since its expireAfter comes near.
func (b *builder) due() bool { return b.Classified.Expirations.Due(b.n, b.now()) }
