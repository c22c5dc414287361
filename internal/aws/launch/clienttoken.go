package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
)

// tokenLedger keeps, per NodeClaim, the next client token and what is known of the calls with it.
//
// EC2 returns the same response to a second call with the same token, and rejects a call with the same token and other
// parameters. So a call with an unknown outcome is repeated unchanged. When that is not possible, the NodeClaim waits
// until an instance would be visible. The ledger moves to the next token only when EC2 knows the token and no instance
// came of it: after a response without an instance, or after a mismatch and a wait. A rejection proves nothing, because
// EC2 may reject a call before it reads the token. A mismatch after nothing but rejections needs no wait.
//
// A new process begins at the token that is recorded on the NodeClaim, by default the first, and takes the same path: a token that an
// earlier process has used returns its old response or a mismatch. It must not begin at an earlier one: EC2 may know that from a call
// that it has refused, and serve the same call now, although a later token has launched an instance that it does not show yet.
//
// Invariant: a call with token n+1 is made only when EC2 knows token n and no instance came of it.
type tokenLedger struct {
	now     func() time.Time
	entries *ttlcache.Cache[string, tokenState]
}

// tokenState is the state of a NodeClaim's current token.
type tokenState struct {
	number int
	// unknownSince is the time of the last call with an unknown outcome; zero if there is none.
	unknownSince time.Time
	// replay is that call, to be repeated unchanged; nil if EC2 knows the token with other parameters.
	replay *fleetCall
	// allOutcomesKnown is true while this process has made every call for the NodeClaim and knows all outcomes. With
	// rejected, EC2 has rejected at least one call with the current token and accepted none: if EC2 knows the token, it
	// knows it from a rejected call.
	allOutcomesKnown, rejected bool
}

// launchTTL is longer than a NodeClaim without an instance lives.
const launchTTL = time.Hour

func newTokenLedger(now func() time.Time) *tokenLedger {
	return &tokenLedger{now: now, entries: ttlcache.New[string, tokenState](launchTTL, now)}
}

// usedUp records that the tokens before this one are used up.
func (l *tokenLedger) usedUp(claim string, number int) {
	if e, _ := l.entries.Get(claim); e.number < number {
		l.entries.Set(claim, tokenState{number: number})
	}
}

// next moves on from an unknown outcome that has lasted long enough. Call it only right after a read of EC2 that showed
// no instance of the NodeClaim.
func (l *tokenLedger) next(claim string) tokenState {
	e, _ := l.entries.Get(claim)
	if e.unknownSince.IsZero() || l.now().Sub(e.unknownSince) < instance.VisibleWithin {
		return e
	}
	settled := tokenState{number: e.number}
	if e.replay == nil {
		settled.number++
	}
	l.entries.Set(claim, settled)
	return settled
}

// begin records that no call was made for the NodeClaim before.
func (l *tokenLedger) begin(claim string) {
	if _, known := l.entries.Get(claim); !known {
		l.entries.Set(claim, tokenState{allOutcomesKnown: true})
	}
}

// noInstance records a response without an instance.
func (l *tokenLedger) noInstance(claim string) {
	e, _ := l.entries.Get(claim)
	l.entries.Set(claim, tokenState{number: e.number + 1, allOutcomesKnown: e.allOutcomesKnown})
}

// rejected records that EC2 has rejected a call.
func (l *tokenLedger) rejected(claim string) {
	if e, known := l.entries.Get(claim); known && e.allOutcomesKnown {
		e.rejected = true
		l.entries.Set(claim, e)
	}
}

// lost records a call with an unknown outcome.
func (l *tokenLedger) lost(claim string, call *fleetCall) {
	e, _ := l.entries.Get(claim)
	l.entries.Set(claim, tokenState{number: e.number, unknownSince: l.now(), replay: call})
}

// mismatched records that EC2 knows the token with other parameters: those of a call that an earlier process made, or
// that this process lost. The outcome of that call is unknown. If only a rejected call can have used the token, nothing
// came of it and the next token may be used at once: spent is true then.
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
	l.entries.Set(claim, e)
	return false
}

// outcomeUnknown reports whether the instance of a call with an unknown outcome may still become visible.
func (l *tokenLedger) outcomeUnknown(claim string) bool {
	e, _ := l.entries.Get(claim)
	return !e.unknownSince.IsZero() && l.now().Sub(e.unknownSince) < instance.VisibleWithin
}

// done forgets a NodeClaim that has its instance.
func (l *tokenLedger) done(claim string) { l.entries.Delete(claim) }

// token returns the client token of a NodeClaim's n-th call, the same in every process. EC2 accepts up to 64
// characters.
func token(clusterUID, claim string, number int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", clusterUID, claim, number))
	return hex.EncodeToString(sum[:])
}
