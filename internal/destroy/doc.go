// Package destroy is the only way to delete what runs: NodeClaims, Nodes, pods and instances. A test of the repository's structure finds
// every other call.
//
// Guard demands two independent proofs of each deletion: the API server's live object, by UID and resource version, and EC2's live
// description of the instance, with this cluster's identity and the NodeClaim's UID. A Permit passes the first proof on to the cloud
// adapter, which terminates an instance only with both.
//
// Budget limits how much may be deleted for one kind of reason: by NodePool and for the cluster, as a share of the capacity in an hour and
// as nodes in a minute. What deletes more is a fault, and pauses deletions until a person resumes them; launches go on. People who delete
// and instances that are interrupted are not limited. The ledger of the budget is kept in a ConfigMap and written before anything is
// deleted, so that a restart forgets nothing.
package destroy
