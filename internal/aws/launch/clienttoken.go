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
type tokenLedger struct {
	now     func() time.Time
	entries *memo.Memo[string, tokenState]
}

// entry is the state of one claim's current token.
type tokenState struct {
	number int
	// doubtful since the last call whose outcome is not known; zero if there is none.
	unknownSince time.Time
	// replay is that call, to be made again as it was; nil if EC2 knows the token with other parameters.
	replay *fleetCall
	// own is true while every call that was ever made for the claim was made by this process, and its outcome is known. With refused,
	// those with the current token were refused, one at least: if EC2 knows the token nevertheless, then from them.
	allOutcomesKnown, rejected bool
}

// remembered is longer than a claim without an instance lives.
const launchTTL = time.Hour

func newTokenLedger(now func() time.Time) *tokenLedger {
	return &tokenLedger{now: now, entries: memo.New[string, tokenState](launchTTL, now)}
}

// settled moves on from a doubt that has lasted long enough. It may only be called right after a look at
// EC2 that showed no instance of the claim.
func (l *tokenLedger) next(claim string) tokenState {
	e, _ := l.entries.Get(claim)
	if e.unknownSince.IsZero() || l.now().Sub(e.unknownSince) < instance.VisibleWithin {
		return e
	}
	settled := tokenState{number: e.number}
	if e.replay == nil {
		settled.number++
	}
	l.entries.Put(claim, settled)
	return settled
}

// begin notes that no call was made for the claim before.
func (l *tokenLedger) begin(claim string) {
	if _, known := l.entries.Get(claim); !known {
		l.entries.Put(claim, tokenState{allOutcomesKnown: true})
	}
}

// answered notes an answer without an instance.
func (l *tokenLedger) noInstance(claim string) {
	e, _ := l.entries.Get(claim)
	l.entries.Put(claim, tokenState{number: e.number + 1, allOutcomesKnown: e.allOutcomesKnown})
}

// refused notes that EC2 has refused a call.
func (l *tokenLedger) rejected(claim string) {
	if e, known := l.entries.Get(claim); known && e.allOutcomesKnown {
		e.rejected = true
		l.entries.Put(claim, e)
	}
}

// lost notes a call whose outcome is not known.
func (l *tokenLedger) lost(claim string, call *fleetCall) {
	e, _ := l.entries.Get(claim)
	l.entries.Put(claim, tokenState{number: e.number, unknownSince: l.now(), replay: call})
}

// mismatched notes that EC2 knows the token with other parameters: those of a call that an earlier process
// made, or that this one has lost. What came of it is in doubt. Where it can only be one that was refused, nothing came of it, and
// the next token may be used at once: spent is true then.
func (l *tokenLedger) mismatched(claim string) (spent bool) {
	e, _ := l.entries.Get(claim)
	if e.allOutcomesKnown && e.rejected {
		l.noInstance(claim)
		return true
	}
	e.allOutcomesKnown = false
	if e.unknownSince.IsZero() {
		e.unknownSince = l.now()
	}
	e.replay = nil
	l.entries.Put(claim, e)
	return false
}

// outcomeUnknown reports whether a call was made whose outcome is not known, and could still show.
func (l *tokenLedger) outcomeUnknown(claim string) bool {
	e, _ := l.entries.Get(claim)
	return !e.unknownSince.IsZero() && l.now().Sub(e.unknownSince) < instance.VisibleWithin
}

// bought forgets a claim that has its instance.
func (l *tokenLedger) done(claim string) { l.entries.Drop(claim) }

// token is the client token of a claim's n-th call, the same in every process. EC2 takes 64 characters.
func token(clusterUID, claim string, number int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", clusterUID, claim, number))
	return hex.EncodeToString(sum[:])
}
