// Package plan computes, over plain data, everything a dispatch or combine
// needs to know before a byte moves: who owns which expert, whether the input is
// legal, how many rows go where, and at which row of which buffer each one
// lands. It moves nothing, waits for nothing and knows no transport; package moe
// executes what it says.
//
// The stages of a dispatch, each a function here:
//
//	Route     my idx -> Sent: counts by rank and expert, tokens by rank
//	Head      the counts (or a Fault) as the bytes that every rank sends to all
//	Matrix    all ranks' counts
//	Place     Matrix -> where my rows begin at each rank, what I receive, where
//	          results come back to
//	Runs      Sent, Placement -> stretches of rows to copy, in final position
//	Records   what travels beside the rows: token, local experts, weights
//	Unpack    records -> source, token, expert and weight of each received row
//
// Positions depend on the counts only, never on the order of arrival.
package plan
