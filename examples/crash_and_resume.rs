//! A child process runs a scripted agent session and is killed with SIGKILL while it appends; the parent resumes the session.
//!
//! ```text
//! cargo run --release --example crash_and_resume             # in a scratch store
//! cargo run --release --example crash_and_resume -- DIR      # in a store that stays: run it twice, the session goes on
//! ```
//!
//! The parent prints what was durable, the closers that recovery added, and the messages that the model would see. Then it resumes
//! once more to show that recovery is idempotent: nothing is cut or closed a second time.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::content::{ContentBlock, ModelSource};
use sessionlog::event::control::{HeaderSnapshot, RequestHeader, StepEnd, StepStart, ToolCall, TurnEnd, TurnStart};
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{Placement, SessionHeader, SessionId};
use sessionlog::segment::SegmentBackend;
use sessionlog::store::{LiveSession, Store};

type Outcome = Result<(), Box<dyn Error>>;

const ID: &str = "crash-demo";

/// Flush reports to wait for before the child is killed: the third turn is then under way.
const REPORTS_BEFORE_KILL: usize = 9;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["child", directory] => child(Path::new(directory)).await,
        [directory] => parent(Path::new(directory)).await,
        [] => {
            let scratch = std::env::temp_dir().join(format!("sessionlog-crash-demo-{}", std::process::id()));
            let outcome = parent(&scratch).await;
            std::fs::remove_dir_all(&scratch)?;
            outcome
        }
        _ => Err("usage: crash_and_resume [DIR]".into()),
    }
}

/// Starts the child, kills it in the middle of a stream, and resumes what it left.
async fn parent(directory: &Path) -> Outcome {
    let reported = run_child_until_killed(directory)?;
    println!("child killed; its last report was: everything before seq {reported} is flushed");

    let store = Store::open(SegmentBackend::open(directory)?)?;
    let before = store.inspect(ID).await?;
    let durable = before.durable_seq();
    println!("durable after the crash: {durable} events ({} more than reported)", durable.saturating_sub(reported));
    if durable < reported {
        return Err("a flushed event is gone".into());
    }

    let session = store.resume(ID).await?;
    println!("recovery: {}", session.recovery());
    let closers = session.recovery().closed.map_or(0..0, |closed| closed.first_seq..closed.next_seq);
    for event in session.events(closers) {
        let data: String = event.data().chars().take(110).collect();
        println!("  closer  {:>6}  {:<18} {data}", event.seq(), event.event_type());
    }
    println!("the model would now see {} messages:", session.messages().len());
    for message in &*session.messages() {
        let text: String = message.json().as_str().chars().take(110).collect();
        println!("  {text}");
    }
    let (events, messages) = (session.next_seq(), session.messages().len());
    session.close().await?;
    drop(session);

    let again = store.resume(ID).await?;
    println!("resumed once more: {}", again.recovery());
    if (again.next_seq(), again.messages().len()) != (events, messages) {
        return Err("recovery is not idempotent".into());
    }
    println!("same {events} events, same {messages} messages: recovery is idempotent");
    again.close().await?;
    store.close().await?;
    Ok(())
}

/// Runs the child until it has reported some flushes and a bit more, then kills it. Returns the last flushed next seq.
fn run_child_until_killed(directory: &Path) -> Result<u64, Box<dyn Error>> {
    let me: PathBuf = std::env::current_exe()?;
    let mut child = Command::new(me).arg("child").arg(directory).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("the child has no standard output")?;
    let mut reported = 0;
    for line in BufReader::new(output).lines().take(REPORTS_BEFORE_KILL) {
        reported = line?.parse()?;
    }
    // The child is streaming the next answer now.
    std::thread::sleep(Duration::from_millis(37));
    child.kill()?;
    child.wait()?;
    Ok(reported)
}

/// A scripted agent: turn after turn until it is killed.
async fn child(directory: &Path) -> Outcome {
    let store = Store::open(SegmentBackend::open(directory)?)?;
    let exists = store.inspect(ID).await.is_ok();
    let session = if exists {
        store.resume(ID).await?
    } else {
        store.create(SessionHeader::new(SessionId::new(ID)?.as_str()).cwd("/srv/demo")).await?
    };
    let first_turn = session.next_turn();
    for turn in first_turn.. {
        run_turn(&session, turn).await?;
    }
    Ok(())
}

/// One turn: the model is asked, streams an answer with a tool call, the tool runs, and the model concludes.
async fn run_turn(session: &LiveSession<SegmentBackend>, turn: u64) -> Outcome {
    let model = || ModelSource::new("example", "scripted-1");
    let call_id = format!("call-{turn}");
    session.append(TurnStart::new(turn))?;
    session.append_surface(UserMessage::text(format!("Question {turn}: what is in the log?")), Placement::append())?;
    session.append(StepStart::new(turn, 1))?;
    if turn == 1 {
        let header = HeaderSnapshot::new("example", "scripted-1").system("Answer briefly.");
        session.append(RequestHeader::new(header, "initial"))?;
    }
    flush(session).await?; // before the model is called

    let thought = stream(session, turn, 1, "Let me look before I answer. ").await?;
    let content = vec![ContentBlock::text(thought), ContentBlock::tool_call(&call_id, "bash", r#"{"command":"ls"}"#)];
    session.append_surface(
        AssistantMessage::new(turn, 1, content, model()),
        Placement::append().from(session.step_chunks()),
    )?;
    let call = session.append(ToolCall::new(turn, 1, &call_id, "bash", r#"{"command":"ls"}"#))?;
    flush(session).await?; // before the tool runs

    let result = ToolResult::text(turn, 1, &call_id, "Cargo.toml\nsrc\n");
    session.append_surface(result, Placement::append().from([call.seq()]))?;
    session.append(StepEnd::new(turn, 1))?;
    session.append(StepStart::new(turn, 2))?;
    flush(session).await?; // before the model is called again

    let answer = stream(session, turn, 2, "There is a manifest and a source directory. ").await?;
    session.append_surface(
        AssistantMessage::new(turn, 2, vec![ContentBlock::text(answer)], model()),
        Placement::append().from(session.step_chunks()),
    )?;
    session.append(StepEnd::new(turn, 2))?;
    session.append(TurnEnd::completed(turn))?;
    flush(session).await
}

/// Streams `text` a few times over, a few letters at a time, as a model would; returns the whole.
async fn stream(
    session: &LiveSession<SegmentBackend>,
    turn: u64,
    step: u64,
    text: &str,
) -> Result<String, Box<dyn Error>> {
    let whole = text.repeat(4);
    for piece in whole.as_bytes().chunks(4) {
        session.append(AssistantChunk::text(turn, step, 0, String::from_utf8_lossy(piece)))?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(whole)
}

/// Flushes and reports on standard output up to where the log is durable now.
async fn flush(session: &LiveSession<SegmentBackend>) -> Outcome {
    let next = session.next_seq();
    session.flush().await?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{next}")?;
    out.flush()?;
    Ok(())
}
