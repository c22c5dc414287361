package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
)

// ledger keeps, per claim, which client token comes next and what is known of the calls made with it.
//
// EC2 answers a second call with a token as it answered the first, and refuses one whose parameters
// differ. So a call whose outcome is not known is made again as it was. When that is not possible, a claim
// waits until an instance would have been seen. A token is left behind only when EC2 knows it and no
// instance came of it: after an answer without one, or after a mismatch and a wait. A refusal proves
// nothing, since it may be refused before the token is looked at; a mismatch after nothing but refusals needs no wait.
//
// A process that starts anew begins at the first token and walks the same way: those that an earlier
// process has used up give their old answer or a mismatch, never a second instance.
//
// Invariant: a call with token n+1 is made only when EC2 knows token n and no instance came of it.
type ledger struct {
	now     func() time.Time
	entries *memo.Memo[string, entry]
}

// entry is the state of one claim's current token.
type entry struct {
	number int
	// doubtful since the last call whose outcome is not known; zero if there is none.
	doubtful time.Time
	// replay is that call, to be made again as it was; nil if EC2 knows the token with other parameters.
	replay *request
	// own is true while every call that was ever made for the claim was made by this process, and its outcome is known. With refused,
	// those with the current token were refused, one at least: if EC2 knows the token nevertheless, then from them.
	own, refused bool
}

// remembered is longer than a claim without an instance lives.
const remembered = time.Hour

func newLedger(now func() time.Time) *ledger {
	return &ledger{now: now, entries: memo.New[string, entry](remembered, now)}
}

// settled moves on from a doubt that has lasted long enough. It may only be called right after a look at
// EC2 that showed no instance of the claim.
func (l *ledger) settled(claim string) entry {
	e, _ := l.entries.Get(claim)
	if e.doubtful.IsZero() || l.now().Sub(e.doubtful) < instance.VisibleWithin {
		return e
	}
	settled := entry{number: e.number}
	if e.replay == nil {
		settled.number++
	}
	l.entries.Put(claim, settled)
	return settled
}

// begin notes that no call was made for the claim before.
func (l *ledger) begin(claim string) {
	if _, known := l.entries.Get(claim); !known {
		l.entries.Put(claim, entry{own: true})
	}
}

// answered notes an answer without an instance.
func (l *ledger) answered(claim string) {
	e, _ := l.entries.Get(claim)
	l.entries.Put(claim, entry{number: e.number + 1, own: e.own})
}

// refused notes that EC2 has refused a call.
func (l *ledger) refused(claim string) {
	if e, known := l.entries.Get(claim); known && e.own {
		e.refused = true
		l.entries.Put(claim, e)
	}
}

// lost notes a call whose outcome is not known.
func (l *ledger) lost(claim string, call *request) {
	e, _ := l.entries.Get(claim)
	l.entries.Put(claim, entry{number: e.number, doubtful: l.now(), replay: call})
}

// mismatched notes that EC2 knows the token with other parameters: those of a call that an earlier process
// made, or that this one has lost. What came of it is in doubt. Where it can only be one that was refused, nothing came of it, and
// the next token may be used at once: spent is true then.
func (l *ledger) mismatched(claim string) (spent bool) {
	e, _ := l.entries.Get(claim)
	if e.own && e.refused {
		l.answered(claim)
		return true
	}
	e.own = false
	if e.doubtful.IsZero() {
		e.doubtful = l.now()
	}
	e.replay = nil
	l.entries.Put(claim, e)
	return false
}

// inDoubt reports whether a call was made whose outcome is not known, and could still show.
func (l *ledger) inDoubt(claim string) bool {
	e, _ := l.entries.Get(claim)
	return !e.doubtful.IsZero() && l.now().Sub(e.doubtful) < instance.VisibleWithin
}

// bought forgets a claim that has its instance.
func (l *ledger) bought(claim string) { l.entries.Drop(claim) }

// token is the client token of a claim's n-th call, the same in every process. EC2 takes 64 characters.
func token(clusterUID, claim string, number int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", clusterUID, claim, number))
	return hex.EncodeToString(sum[:])
}
