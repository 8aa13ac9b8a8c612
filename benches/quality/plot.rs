//! Small SVG charts, drawn here.

use std::fmt::Write;

const COLOURS: [&str; 5] = ["#0b6e4f", "#1f77b4", "#d1495b", "#e08e00", "#7d5ba6"];
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
/// Room for the scale, the legend and the names below.
const LEFT: f64 = 56.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 44.0;

/// One line or set of bars: its name and a value for each label; `None` leaves a gap.
pub(crate) type Series<'a> = (&'a str, Vec<Option<f64>>);

pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) labels: &'a [String],
    pub(crate) series: &'a [Series<'a>],
    /// Lowest value of the scale.
    pub(crate) from: f64,
    /// Bars instead of lines.
    pub(crate) bars: bool,
}

impl Chart<'_> {
    pub(crate) fn svg(&self) -> String {
        let largest = self.series.iter().flat_map(|(_, values)| values).flatten().fold(self.from, |most, value| most.max(*value));
        let step = nice((largest - self.from) / 5.0);
        let to = self.from + (((largest - self.from) / step).ceil() * step).max(step);
        let y = |value: f64| HEIGHT - BOTTOM - (value - self.from) / (to - self.from) * (HEIGHT - BOTTOM - TOP);
        let wide = (WIDTH - LEFT - 16.0) / self.labels.len() as f64;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\" fill=\"#222222\">{}</text>\n",
            self.title
        );
        let mut at = self.from;
        while at <= to + step / 2.0 {
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444444\">{}</text>",
                WIDTH - 16.0, y(at), y(at), LEFT - 6.0, y(at) + 4.0, (at * 100.0).round() / 100.0
            );
            at += step;
        }
        for (at, label) in self.labels.iter().enumerate() {
            let x = LEFT + wide * (at as f64 + 0.5);
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#444444\">{label}</text>", HEIGHT - BOTTOM + 18.0);
        }
        for (which, (name, values)) in self.series.iter().enumerate() {
            let colour = COLOURS[which % COLOURS.len()];
            let x = LEFT + which as f64 * (WIDTH - LEFT - 16.0) / self.series.len() as f64;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.0}\" y=\"40\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{:.0}\" y=\"50\" fill=\"#222222\">{name}</text>",
                x + 17.0
            );
            if self.bars {
                self.draw_bars(&mut out, (which, values), wide, &y);
            } else {
                let points = values.iter().enumerate().filter_map(|(at, value)| Some((LEFT + wide * (at as f64 + 0.5), y((*value)?))));
                let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>", points.join(" "));
            }
        }
        out + "</svg>\n"
    }

    fn draw_bars(&self, out: &mut String, (which, values): (usize, &[Option<f64>]), wide: f64, y: &impl Fn(f64) -> f64) {
        let bar = wide * 0.8 / self.series.len() as f64;
        for (at, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let x = LEFT + wide * (at as f64 + 0.1) + bar * which as f64;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                y(*value), (bar - 1.0).max(1.0), (y(self.from) - y(*value)).max(0.5), COLOURS[which % COLOURS.len()]
            );
        }
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|nice| *nice >= step * 0.999).unwrap_or(step)
}
